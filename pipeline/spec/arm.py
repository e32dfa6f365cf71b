"""An arm as a sweep has it: a policy's parameters, with a name, seeds and perhaps a budget.

What a policy is and does is in the file of its kind in `pipeline/arms`.
"""

from dataclasses import dataclass
from typing import Literal

from pipeline.arms.table import PolicySpec
from pipeline.fields.bounds import Amount, Natural
from pipeline.fields.identity import Runtime, Science, added_science
from pipeline.fields.strict import Strict

MatchOn = Literal["mean_prompt", "peak", "removed_tokens", "total_input"]


@dataclass(frozen=True, kw_only=True)
class ArmSpec(Strict):
    """One treatment."""

    name: Runtime[str]
    """Part of the run id's slug; the parameters are the science."""
    policy: Science[PolicySpec]
    plan: Science[bool] = True
    """Whether the agent has `planctl`. False prices the plan, or reproduces a peer as published."""
    placeholder: Science[str | None] = None
    """Text where an output was removed; None: the policy's own wording. `{lines}`, `{tokens}` and
    `{id}` stand for those of the output."""
    instructions: Science[str] = added_science("")
    """Appended to the system message, to tell the agent what it will meet; Jinja, as the agent's
    prompts are."""
    cache: Science[Literal["recompute", "splice"]] = added_science("recompute")
    """`splice`: after an edit, the keys of the text behind it move instead of being computed; an
    approximation, since that text had read what was cut (docs/splice.md)."""
    splice_repair_tokens: Science[Natural] = added_science(0)
    """First tokens of every moved stretch that are computed."""
    splice_refresh_edits: Science[Natural] = added_science(0)
    """After so many spliced edits the next one has everything computed; 0: never."""
    seeds: Runtime[tuple[int, ...] | None] = None
    """Seeds of this arm, where they differ from the sweep's."""
    budget: Science[Amount | None] = None
    """Tokens asked for, measured by `match_on`; the parameter that meets it comes from a pilot."""
    matched_to: Science[str | None] = None
    """The arm whose other seeds set the budget of each instance."""
    match_on: Science[MatchOn] = "mean_prompt"
    pilot: Science[tuple[tuple[float, float], ...]] = ()
    """For a budget: (value of the policy's tuned parameter, tokens it came to by `match_on`), from
    runs or replay of instances outside the evaluation set."""

    def __post_init__(self) -> None:
        if self.budget is not None and self.matched_to is not None:
            raise ValueError("give an arm either a budget or matched_to, not both")
        if (self.budget is not None or self.matched_to is not None) and not self.pilot:
            raise ValueError(
                f"arm {self.name} is to meet a budget and has no pilot: give pairs of parameter"
                " value and tokens, measured on instances outside the evaluation set"
            )
        if self.cache != "splice" and (self.splice_repair_tokens or self.splice_refresh_edits):
            raise ValueError(
                f"arm {self.name} says how to splice and does not: add cache: splice, or leave"
                " splice_repair_tokens and splice_refresh_edits at 0"
            )
        if self.matched_to == self.name:
            raise ValueError(f"arm {self.name} cannot be matched to itself")

    @property
    def phase(self) -> int:
        """2 where runs of another arm must be finished before one of this arm can start."""
        return 1 if self.matched_to is None else 2
