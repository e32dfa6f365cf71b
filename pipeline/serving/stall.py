"""When a server that lives counts as hung: the rule, without the server.

A hung engine keeps its process, its open port and often a healthy `/health`; what it does not do is
make tokens. Times are given in, monotonic, in seconds.
"""


class StallRule:
    """Decides from tokens and times whether a server hangs. Pure but for its memory."""

    def __init__(self, stall_s: float, now_s: float) -> None:
        """Begin with a server that has just answered."""
        self.stall_s = stall_s
        self._tokens: int | None = None
        self._moved_s = now_s
        self._proven_s = now_s

    def seen(self, tokens: int, has_work: bool, now_s: float) -> str | None:
        """Note a look at its counters; return why it counts as hung, None while it does not."""
        if tokens != self._tokens:
            self._tokens = tokens
            self._moved_s = self._proven_s = now_s
        elif not has_work:
            self._moved_s = now_s
        elif now_s - self._moved_s > self.stall_s:
            return f"it made no token for {now_s - self._moved_s:.0f} s while requests were there"
        return None

    def silent(self, now_s: float) -> str | None:
        """Note that it gave no counters; as `seen`."""
        if now_s - self._moved_s > self.stall_s:
            return f"its /metrics did not answer for {now_s - self._moved_s:.0f} s"
        return None

    def is_unproven(self, now_s: float) -> bool:
        """Return whether nothing has shown for `stall_s` that it can make a token."""
        return now_s - self._proven_s > self.stall_s

    def proven(self, now_s: float) -> None:
        """Note that it answered a probe."""
        self._proven_s = now_s
