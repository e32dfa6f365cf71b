"""The words of a test's launch: its own replace those that its module gives every launch."""


def words_of(*words: str) -> list[str]:
    """Return `words` with only the last for each key, where it stood first."""
    return list({word.partition("=")[0].lstrip("+~"): word for word in words}.values())
