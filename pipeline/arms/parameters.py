"""What every arm consists of: parameters, which are science, and the rule that they build.

A parameter class holds everything that is known about its arm, so that the rest of the pipeline
asks the arm instead of listing kinds. The defaults are those of the plain agent: no tools of its
own, no cleanup turn, no budget parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pipeline.fields.identity import Science
from pipeline.fields.strict import Strict
from pipeline.views.offered_tool import OfferedTool
from pipeline.views.policy import Policy, TokenCounter


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyContext:
    """What a policy may know about its run besides its parameters."""

    seed: int
    """The only source of chance in a policy."""
    counter: TokenCounter
    """Counts what the model is shown."""
    context_length: int
    """The model's window, tokens."""
    placeholder: str | None = None
    """The arm's text where an output was removed; None: the policy's own wording."""
    text_mode: bool = False
    """The model makes no tool calls and answers in plain lines."""


@dataclass(frozen=True, kw_only=True)
class Parameters(Strict, ABC):
    """The parameters of an arm, identified by `kind`; `table` finds every subclass."""

    source: ClassVar[str]
    """Where the rule is from."""
    tuned: ClassVar[str | None] = None
    """The parameter that sets how much the arm leaves, for budgets."""
    tuned_with: ClassVar[str] = ""
    """The setting without which `tuned` does nothing."""
    example: ClassVar[Mapping[str, Any]] = {}
    """Parameters that make the arm act within the six turns of docs/arms.md."""
    asks_focus: ClassVar[bool] = False
    """The bash tool takes the question that the arm's line pruner needs."""
    needs_head: ClassVar[bool] = False
    """The model server must carry a line head."""

    kind: Science[str]

    @abstractmethod
    def build(self, context: PolicyContext) -> Policy:
        """Return the arm's rule, for one run."""

    @property
    def budget_parameter(self) -> str | None:
        """The parameter by which this arm meets a budget; None where it has none."""
        return self.tuned

    @property
    def for_example(self) -> Mapping[str, Any]:
        """Parameters to change so that the arm acts within the example's six turns."""
        return self.example

    @property
    def prunes(self) -> bool:
        """False for an arm that never takes anything out of the view."""
        return True

    @property
    def has_cleanup(self) -> bool:
        """True where the harness asks the model what it no longer needs."""
        return False

    @property
    def tools(self) -> tuple[OfferedTool, ...]:
        """The tools that this arm adds to the list, which stays the same through a run."""
        return ()

    @property
    def needs_plan(self) -> bool:
        """True for a rule that waits for plan steps, and so never acts without a plan."""
        return False

    def without_plan(self, every_turns: int) -> Self:  # noqa: ARG002
        """Return the arm as it acts on a recording without a plan, where plan steps never end."""
        return self
