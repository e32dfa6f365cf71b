"""What the agent is: its prompts, its limits, how outputs are shown."""

from dataclasses import dataclass
from typing import Literal

from pipeline.fields.bounds import Count, Natural, Seconds
from pipeline.fields.identity import Runtime, Science, added_science


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """A scaffold with its prompts and limits."""

    name: Science[str]
    scaffold: Science[str] = added_science("mini")
    """The loop and its tools: a package of `pipeline/agent`."""
    submit: Science[Literal["sentinel", "diff", "commits", "answer"]] = added_science("sentinel")
    """What a run submits: the patch that its last command prints after the scaffold's sentinel, all
    that differs from the first commit, what was committed since, or a text
    (docs/adding-a-scaffold.md says where from)."""
    system_template: Science[str]
    instance_template: Science[str]
    """Jinja; sees `task` and `workdir`."""
    plan_instructions: Science[str] = ""
    """Appended to the system message of every arm with a plan."""
    observation_template: Science[str]
    """Jinja; sees `output` with `output`, `returncode`, `exception_info`."""
    format_error_template: Science[str]
    """Jinja; sees `error`, `finish_reason`, `has_tool_calls` and `tool_names`."""
    step_limit: Science[Natural] = 250
    """Counts step calls only; 0: no limit."""
    wall_limit_s: Science[Seconds] = 14_400.0
    """Meant never to bind; the gate reports where it did."""
    command_timeout_s: Science[Seconds] = 60.0
    max_consecutive_format_errors: Science[Count] = 3
    elide_chars: Science[Natural] = 10_000
    """Longer outputs are shown as head and tail, in every arm; a recorded decision. 0: never."""
    output_limit_bytes: Science[Count] = 1_000_000
    """Raw output beyond this is never kept."""
    parallel_tool_calls: Science[bool] = True
    keeps_reasoning: Science[bool] = added_science(True)
    """False: replies enter the history without their reasoning, in every arm; a recorded edit."""
    stop_on_loop: Science[bool] = False
    loop_length: Science[Count] = 10
    """So many identical calls in a row are labelled a loop."""
    prompts_from: Runtime[str | None] = None
    """Where the templates were read (`PACKAGE:NAME`, `FILE:KEY`, ...); they stand here in full."""
    expected_wall_s: Runtime[Seconds] = 1800.0
    """How long a run takes, until five runs of the sweep are known."""
    expected_context_tokens: Runtime[Count] = 25_000
    """What a run's prompt grows to, for the number of runs that a server's cache can hold."""
