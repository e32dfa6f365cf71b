"""Which arms cannot begin with another arm's runs: those that are told or offered something else.

The first prompts of two arms are the same only where prompts and tools are. See docs/planning.md.
"""

from collections.abc import Callable, Iterator, Mapping

from pipeline.planning.problem import Problem
from pipeline.spec.arm import ArmSpec
from pipeline.spec.sweep import SweepSpec


def fork_problems(spec: SweepSpec) -> Iterator[Problem]:
    """Yield, for each arm that is to fork, why it cannot."""
    for name in sorted(set(spec.fork_from) - set(spec.arms)):
        yield Problem(field=f"fork_from.{name}", message=f"no arm {name!r} in this sweep")
    for name in spec.arms:
        source = spec.fork_source(name)
        why = None if source is None else _difference(spec, name, source)
        if why is not None:
            yield Problem(field=f"fork_from.{name}", message=why)


def _difference(spec: SweepSpec, name: str, source: str) -> str | None:
    """Return why runs of an arm cannot begin with those of `source`; None where they can."""
    if source not in spec.arms:
        return f"no arm {source!r} in this sweep; there are {', '.join(spec.arms)}"
    arm, base = spec.arms[name], spec.arms[source]
    if missing := sorted(set(spec.seeds_of(name)) - set(spec.seeds_of(source))):
        return f"{source} has no runs of seeds {missing} to begin with"
    if base.policy.prunes:
        return f"{source} edits its own history: what another arm would have seen is not in it"
    if arm.cache == "splice":
        return (
            "its cache holds what it computed on the way, which a shared beginning does not bring: "
            f"run it fresh, fork_from.{name}={name}"
        )
    differing = [what for what, of in _SURFACE.items() if of(arm) != of(base)]
    if not differing:
        return None
    return (
        f"{name} has other {' and '.join(differing)} than {source}: their runs are not alike up to "
        "the first edit. Fork it from an arm that has the same (the plan_prune family from "
        f"sham_cleanup: fork_from.{name}=sham_cleanup), or run it fresh: fork_from.{name}={name}"
    )


_SURFACE: Mapping[str, Callable[[ArmSpec], object]] = {
    "tools": lambda arm: (
        arm.plan,
        arm.policy.asks_focus,
        [tool.schema for tool in arm.policy.tools],
    ),
    "instructions": lambda arm: arm.instructions,
}
