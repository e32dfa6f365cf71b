"""Parameters of every context policy: one frozen dataclass a policy, told apart by `kind`.

Each docstring names the rule in short; METHODS sections 1 and 2 have it in full, and the module of
the same name in `pipeline/context` carries it out. Every field decides what the model sees, so all
of them are science. Nothing here decides anything itself. Pruners with a model of their own are
`line_pruner`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pipeline.spec.bounds import Amount, Count, Natural, Share
from pipeline.spec.identity import Science
from pipeline.spec.line_pruner import LlmLingua2, LongCodeZip, Rag, SelectiveContext, SwePruner
from pipeline.spec.strict import Strict

PLACEHOLDER = "[Earlier command output omitted.]"
"""What stands where an output was pruned, unless an arm or a sweep says otherwise."""


@dataclass(frozen=True, kw_only=True)
class FullHistory(Strict):
    """Nothing is ever edited: the baseline."""

    kind: Science[Literal["full_history"]] = "full_history"


@dataclass(frozen=True, kw_only=True)
class PlanPrune(Strict):
    """A cleanup turn whenever a plan step is completed (METHODS 1), and its ablations."""

    kind: Science[Literal["plan_prune"]] = "plan_prune"
    trigger: Science[Literal["plan_step", "every_k"]] = "plan_step"
    every_k: Science[Count] = 10
    """Turns between cleanups, for `trigger: every_k`."""
    choose: Science[Literal["model", "finished_step", "random"]] = "model"
    """Who picks: the model when asked, the plan (all of the finished step), or chance."""
    random_rate: Science[Share] = 0.5
    """Share of the prunable tokens that `choose: random` prunes at each moment."""
    apply: Science[bool] = True
    """False: asked and recorded, nothing pruned (`sham_cleanup`)."""
    prompt_as: Science[Literal["tool_result", "user_message"]] = "tool_result"
    tool_choice: Science[Literal["named", "required", "auto"]] = "named"
    protect_last_turns: Science[Natural] = 1
    plan_step_column: Science[bool] = True
    prune_reasoning: Science[bool] = False
    """Also drop the reasoning of the turns of finished plan steps."""
    keep_note: Science[bool] = False
    """Put the cleanup's note into the placeholder of what it pruned."""
    recall: Science[bool] = False
    """Offer the tool `recall`, which shows a pruned output again."""
    honour_anytime: Science[bool] = False
    """Let `prune_observations` act outside a cleanup turn too, instead of an error."""
    max_tokens: Science[Count | None] = None
    """Limit of the cleanup's answer; None: the model's own."""


@dataclass(frozen=True, kw_only=True)
class PlanPruneCached(Strict):
    """`plan_prune` whose choices wait until applying them costs less than keeping them."""

    kind: Science[Literal["plan_prune_cached"]] = "plan_prune_cached"
    trigger: Science[Literal["plan_step", "every_k"]] = "plan_step"
    every_k: Science[Count] = 10
    input_price: Science[Amount] = 1.0
    cached_price: Science[Amount] = 0.1
    output_price: Science[Amount] = 5.0
    """Prices a token; only their ratios matter."""
    block_tokens: Science[Count] = 16
    """The server's cache block: a cut re-bills from the last block boundary before it."""
    calls_to_come: Science[Literal["pilot", "so_far", "plan"]] = "so_far"
    pilot_calls: Science[tuple[int, ...]] = ()
    """Calls of each pilot run, for `calls_to_come: pilot`."""
    pilot_capped: Science[tuple[bool, ...]] = ()
    """Whether that pilot run ended at a cap; such runs are censored, not finished."""
    first_output_tokens: Science[Amount] = 300.0
    """What a cleanup is taken to write until one has been seen."""
    apply_at_context_share: Science[Share] = 0.9
    """Apply everything queued once the view holds this share of the window."""
    prompt_as: Science[Literal["tool_result", "user_message"]] = "tool_result"
    tool_choice: Science[Literal["named", "required", "auto"]] = "named"
    protect_last_turns: Science[Natural] = 1
    plan_step_column: Science[bool] = True
    max_tokens: Science[Count | None] = None


@dataclass(frozen=True, kw_only=True)
class ObservationMask(Strict):
    """Only the newest turns' outputs stay; older ones become one line."""

    kind: Science[Literal["observation_mask"]] = "observation_mask"
    keep_last_turns: Science[Natural] = 10
    polling: Science[Natural] = 0
    """The window floats between `keep_last_turns` and this many more, so the cache breaks less."""
    always_keep: Science[tuple[str, ...]] = ()
    """Regular expressions; outputs of matching commands are never masked."""


@dataclass(frozen=True, kw_only=True)
class LlmSummary(Strict):
    """The oldest turns are summarised by the same model; the newest stay."""

    kind: Science[Literal["llm_summary"]] = "llm_summary"
    summarise_turns: Science[Count] = 21
    keep_last_turns: Science[Natural] = 10
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None


@dataclass(frozen=True, kw_only=True)
class Hybrid(Strict):
    """Masking, and a summary once many turns stand unsummarised."""

    kind: Science[Literal["hybrid"]] = "hybrid"
    summarise_turns: Science[Count] = 43
    keep_last_turns: Science[Natural] = 10
    mask_keep_last_turns: Science[Natural] = 10
    polling: Science[Natural] = 0
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None
    summary_reads: Science[Literal["view", "raw"]] = "view"
    """Whether the summary is made from masked outputs, as the agent sees them, or whole ones."""


@dataclass(frozen=True, kw_only=True)
class Deletion(Strict):
    """A random share of older content is deleted: one of the 42 configurations, or one between."""

    kind: Science[Literal["deletion"]] = "deletion"
    scope: Science[Literal["reasoning", "output", "both"]] = "output"
    unit: Science[Literal["turn", "token"]] = "turn"
    rate: Science[Share] = 0.5
    """Share deleted, 0 to 1: of the eligible turns, or of the tokens of each."""
    reasoning_delay: Science[Natural] = 2
    output_delay: Science[Natural] = 2
    """Newest turns left intact; 0 rewrites before the next call."""
    reasoning_in: Science[Literal["auto", "field", "text"]] = "auto"
    """Where reasoning is: its own field, or the assistant's text where the model has none."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise ValueError(f"rate is {self.rate}, not between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class ReusePrune(Strict):
    """Outputs that nothing referred to for some turns go."""

    kind: Science[Literal["reuse_prune"]] = "reuse_prune"
    unused_turns: Science[Natural] = 10
    protect_last_turns: Science[Natural] = 1


@dataclass(frozen=True, kw_only=True)
class AgentDiet(Strict):
    """Each turn compresses the one step a few turns back."""

    kind: Science[Literal["agent_diet"]] = "agent_diet"
    mode: Science[Literal["model", "delete", "random"]] = "model"
    delay_turns: Science[Natural] = 2
    min_tokens: Science[Natural] = 500
    min_saved_tokens: Science[Natural] = 400
    max_ratio: Science[Amount] = 0.8
    """Accepted below this share of the original even if it saves less."""
    keep_rate: Science[Share] = 0.25
    """Share of the tokens that `mode: random` keeps."""
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None


@dataclass(frozen=True, kw_only=True)
class ContextEdit(Strict):
    """Past a threshold of input tokens, all but the newest tool results are cleared."""

    kind: Science[Literal["context_edit"]] = "context_edit"
    trigger_tokens: Science[Natural] = 100_000
    keep_tool_uses: Science[Natural] = 3
    clear_at_least_tokens: Science[Natural] = 0
    """Not applied at all when less than this can be cleared."""
    exclude_tools: Science[tuple[str, ...]] = ()
    clear_tool_inputs: Science[bool] = False


@dataclass(frozen=True, kw_only=True)
class ClearThinking(Strict):
    """Only the newest thinking turns keep their reasoning."""

    kind: Science[Literal["clear_thinking"]] = "clear_thinking"
    keep_turns: Science[Natural] = 1


@dataclass(frozen=True, kw_only=True)
class Offload(Strict):
    """A very long output goes to a file in the sandbox; its head and tail stay."""

    kind: Science[Literal["offload"]] = "offload"
    min_tokens: Science[Natural] = 20_000
    """Of the output as it arrived, before any elision."""
    head_lines: Science[Natural] = 5
    tail_lines: Science[Natural] = 5
    folder: Science[str] = "/tmp/outputs"


@dataclass(frozen=True, kw_only=True)
class Dedup(Strict):
    """Of the outputs of one repeated command, only the newest stays."""

    kind: Science[Literal["dedup"]] = "dedup"
    protect_last_turns: Science[Natural] = 1
    protect_files: Science[tuple[str, ...]] = ()
    """Shell patterns; outputs of commands that name a matching file are never edited."""


@dataclass(frozen=True, kw_only=True)
class PurgeErrors(Strict):
    """The command text of calls that failed some turns ago is cut; the error stays."""

    kind: Science[Literal["purge_errors"]] = "purge_errors"
    after_turns: Science[Natural] = 4
    protect_files: Science[tuple[str, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class SupersedeWrites(Strict):
    """What a command wrote into a file is cut once the file has been read again."""

    kind: Science[Literal["supersede_writes"]] = "supersede_writes"
    protect_last_turns: Science[Natural] = 1
    protect_files: Science[tuple[str, ...]] = ()


@dataclass(frozen=True, kw_only=True)
class DiscardAnytime(Strict):
    """The model may prune at any time and is reminded now and then; there is no cleanup turn."""

    kind: Science[Literal["discard_anytime"]] = "discard_anytime"
    nudge_every: Science[Count] = 10
    """Tool results between reminders."""
    protect_last_turns: Science[Natural] = 1


@dataclass(frozen=True, kw_only=True)
class SwePrunerPro(Strict):
    """Lines that a head in the server finds useless go, one call after they were first shown."""

    kind: Science[Literal["swe_pruner_pro"]] = "swe_pruner_pro"
    head: Science[str] = "unnamed"
    """Which head the server carries, by name or digest: another head is another treatment."""
    threshold: Science[Share] = 0.5
    """A token is kept from this score on, a line with more than half of its tokens."""
    fill_gaps: Science[bool] = True
    """Keep a single line between two kept ones."""
    min_chars: Science[Natural] = 500
    """Shorter outputs are left alone."""


@dataclass(frozen=True, kw_only=True)
class SelfPrune(Strict):
    """The same model, asked apart, lists the lines of each new output that it needs."""

    kind: Science[Literal["self_prune"]] = "self_prune"
    min_chars: Science[Natural] = 500
    """Shorter outputs are left alone."""
    fill_gaps: Science[bool] = True
    temperature: Science[Amount] = 0.0
    max_tokens: Science[Count | None] = None


PolicySpec = Annotated[
    FullHistory
    | PlanPrune
    | PlanPruneCached
    | ObservationMask
    | LlmSummary
    | Hybrid
    | Deletion
    | ReusePrune
    | AgentDiet
    | ContextEdit
    | ClearThinking
    | Offload
    | Dedup
    | PurgeErrors
    | SupersedeWrites
    | DiscardAnytime
    | SwePrunerPro
    | SelfPrune
    | LlmLingua2
    | SelectiveContext
    | LongCodeZip
    | Rag
    | SwePruner,
    Field(discriminator="kind"),
]
"""The parameters of some policy. A new policy is added here, in `context/policies.py` and in
`conf/arm`."""
