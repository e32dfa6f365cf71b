"""Maps offline token counts to positions in the server's prompt.

An offline count knows neither the chat template nor, often, the served vocabulary. But the server
reported the size of each earlier prompt, and a prompt that begins with an earlier one has that size
at that point. Between two such points the offline counts are scaled evenly, so that an error stays
within one turn instead of growing with the prompt.
"""

from bisect import bisect_right


class ServedScale:
    """Known points of one prompt, from its start on."""

    def __init__(self) -> None:
        self._offline = [0]
        self._served = [0]

    def go_back(self, offline_tokens: int) -> None:
        """Forget the points beyond one: there the prompt differs from the previous one."""
        keep = bisect_right(self._offline, offline_tokens)
        del self._offline[max(1, keep) :], self._served[max(1, keep) :]

    def add(self, offline_tokens: int, served_tokens: int) -> None:
        """Note that the prompt up to here has `served_tokens`; drop points that contradict it."""
        while len(self._offline) > 1 and (
            self._offline[-1] >= offline_tokens or self._served[-1] > served_tokens
        ):
            self._offline.pop()
            self._served.pop()
        if offline_tokens > 0:
            self._offline.append(offline_tokens)
            self._served.append(served_tokens)

    def at(self, offline_tokens: int) -> float:
        """Return the served tokens up to a point; beyond the last known one, those of that one."""
        above = bisect_right(self._offline, offline_tokens)
        if above == len(self._offline):
            return float(self._served[-1])
        start, end = self._offline[above - 1], self._offline[above]
        share = (offline_tokens - start) / (end - start)
        return self._served[above - 1] + share * (self._served[above] - self._served[above - 1])
