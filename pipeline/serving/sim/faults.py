"""Faults on demand: what a server or a model may do wrong, at given rates.

Whether a fault strikes depends on the request's bytes and on how often they came before, not on
other runs: a repeated HTTP request has a new chance, and the same sweep meets the same faults.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from random import Random

from xxhash import xxh3_64_intdigest

from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.speech import Act, Reply


class FaultDice:
    """Decides which faults strike a request."""

    MEMORY = 10_000

    def __init__(self, config: SimConfig) -> None:
        self._rates = {name: rate for name, rate in config.faults.items() if rate > 0}
        self._seed = config.fault_seed
        self._times: OrderedDict[int, int] = OrderedDict()

    def cast(self, body: bytes) -> frozenset[str]:
        """Return the names of the faults that strike this request."""
        if not self._rates:
            return frozenset()
        digest = xxh3_64_intdigest(body, self._seed)
        times = self._times.pop(digest, 0) + 1
        self._times[digest] = times
        if len(self._times) > self.MEMORY:
            self._times.popitem(last=False)
        return frozenset(
            name
            for name, rate in self._rates.items()
            if Random(f"{digest}/{times}/{name}").random() < rate
        )


def spoiled(reply: Reply, faults: frozenset[str]) -> Reply:
    """Return the reply as a failing model would have given it."""
    if "empty" in faults:
        return Reply(content="")
    if "unknown_tool" in faults and reply.acts:
        reply = replace(reply, acts=(Act("file_editor", reply.acts[0].arguments),))
    if "wrong_ids" in faults:
        reply = replace(reply, acts=tuple(_with_wrong_ids(act) for act in reply.acts))
    return reply


def with_bad_arguments(message: Mapping[str, object]) -> dict[str, object]:
    """Return a chat message whose tool calls break off in the middle of their arguments."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return dict(message)
    broken = []
    for call in calls:
        function = call["function"]
        cut = function["arguments"][: max(1, len(function["arguments"]) - 3)]
        broken.append({**call, "function": {**function, "arguments": cut}})
    return {**message, "tool_calls": broken}


def _with_wrong_ids(act: Act) -> Act:
    if act.tool != "prune_observations":
        return act
    return Act(act.tool, {**act.arguments, "ids": [100_001, 100_002, -1]})
