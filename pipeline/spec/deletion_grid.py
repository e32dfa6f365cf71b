"""The 42 deletion configurations as data: scope x (unit, rate) x timing.

See docs/methods.md, Random deletion.

3 scopes x (4 turn-level + 3 token-level rates) x 2 timings. `conf/arms/grid42.yaml` is written from
here, so that single arms can be overridden from the command line.
"""

from itertools import product
from typing import Literal

from pipeline.arms.deletion import Deletion
from pipeline.spec.arm import ArmSpec

Scope = Literal["reasoning", "output", "both"]
Timing = Literal["delayed", "immediate"]

SCOPES: tuple[Scope, ...] = ("reasoning", "output", "both")
TIMINGS: tuple[Timing, ...] = ("delayed", "immediate")
RATES_PERCENT: dict[Literal["turn", "token"], tuple[int, ...]] = {
    "turn": (25, 50, 75, 100),
    "token": (25, 50, 75),
}
DELAYED_TURNS = 2
"""Newest turns that the delayed configurations leave intact."""


def deletion_grid() -> tuple[ArmSpec, ...]:
    """Return the 42 arms, named `delete_SCOPE_UNITRATE_TIMING`."""
    rates = [(unit, percent) for unit, percents in RATES_PERCENT.items() for percent in percents]
    arms = []
    for scope, (unit, percent), timing in product(SCOPES, rates, TIMINGS):
        delay = DELAYED_TURNS if timing == "delayed" else 0
        policy = Deletion(
            scope=scope,
            unit=unit,
            rate=percent / 100,
            reasoning_delay=delay,
            output_delay=delay,
        )
        name = f"delete_{scope}_{unit}{percent}_{timing}"
        arms.append(ArmSpec(name=name, policy=policy))
    return tuple(arms)


def grid_yaml() -> str:
    """Return the text of `conf/arms/grid42.yaml`."""
    lines = [
        "# @package arms",
        "# The 42 deletion configurations, written from spec/deletion_grid.py.",
    ]
    for arm in deletion_grid():
        p = arm.policy
        if not isinstance(p, Deletion):
            raise TypeError(f"{arm.name} is no deletion arm")
        lines += [
            f"{arm.name}:",
            f"  name: {arm.name}",
            f"  policy: {{kind: deletion, scope: {p.scope}, unit: {p.unit}, rate: {p.rate},"
            f" reasoning_delay: {p.reasoning_delay}, output_delay: {p.output_delay}}}",
        ]
    return "\n".join(lines) + "\n"
