"""How much of a server's time a run used.

`gpu_s` is the number of GPUs times the integral of dt / (calls in flight), over the run's calls
(docs/methods.md, GPU time): while n calls are in flight each is charged 1/n of every second, so the
runs of a server sum to the time it was busy. Knows neither servers nor runs, only names.
"""

import threading
import time
from collections.abc import Callable

from pipeline.protocols import ChatReply, ChatRequest, Completer


class BusyMeter:
    """Shares one server's busy time among those who have calls in flight. Thread-safe.

    One running integral of dt / n serves all: a call's share is its growth while the call lasts.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._in_flight = 0
        self._since_s = 0.0
        self._share_s = 0.0
        self._busy_s = 0.0
        self._used_s: dict[str, float] = {}
        self._tokens = 0

    @property
    def busy_s(self) -> float:
        """Seconds in which at least one call was in flight."""
        with self._lock:
            self._advance()
            return self._busy_s

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of all calls that were answered."""
        with self._lock:
            return self._tokens

    def begin(self) -> float:
        """Note that a call starts; pass what is returned to `end`."""
        with self._lock:
            self._advance()
            self._in_flight += 1
            return self._share_s

    def end(self, began: float, user: str, tokens: int = 0) -> None:
        """Note that a call ended, answered or not, and charge it to `user`."""
        with self._lock:
            self._advance()
            self._in_flight -= 1
            self._used_s[user] = self._used_s.get(user, 0.0) + self._share_s - began
            self._tokens += tokens

    def take(self, user: str) -> float:
        """Return the seconds charged to `user` since the last time, and forget them."""
        with self._lock:
            return self._used_s.pop(user, 0.0)

    def _advance(self) -> None:
        now_s = self._now_s()
        if self._in_flight:
            self._share_s += (now_s - self._since_s) / self._in_flight
            self._busy_s += now_s - self._since_s
        self._since_s = now_s


class MeteredCompleter:
    """A completer whose calls are charged to one user of a meter."""

    def __init__(self, completer: Completer, meter: BusyMeter, user: str) -> None:
        self._completer = completer
        self._meter = meter
        self._user = user

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; see `pipeline.protocols.Completer`."""
        began = self._meter.begin()
        tokens = 0
        try:
            reply = self._completer.complete(request)
            tokens = reply.prompt_tokens + reply.completion_tokens
        finally:
            self._meter.end(began, self._user, tokens)
        return reply
