"""A number and its noun in agreement, as messages say them."""


def plural(n: int, one: str, several: str | None = None) -> str:
    """Return `1 run` or `1,200 runs`.

    Args:
        n: how many.
        one: the words for a single one; they may go on to the verb, as in "run has".
        several: the words for any other number; the default is `one` with an s.
    """
    return f"{n:,} {one if n == 1 else several or one + 's'}"
