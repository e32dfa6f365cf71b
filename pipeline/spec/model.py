"""What a model is, how it is sampled, and how it is served."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.fields.bounds import Amount, Count, Natural, Seconds, Share
from pipeline.fields.identity import Runtime, Science, added_science


@dataclass(frozen=True, kw_only=True)
class SamplingSpec:
    """Sampling settings, from the model's card; None leaves the server's default."""

    temperature: Science[Amount | None] = None
    top_p: Science[Share | None] = None
    top_k: Science[int | None] = None
    min_p: Science[Share | None] = None
    presence_penalty: Science[float | None] = None
    repetition_penalty: Science[float | None] = None


@dataclass(frozen=True, kw_only=True)
class ServeSpec:
    """How a server for the model is started. None of it decides the result but the parsers."""

    runtime: Runtime[Literal["venv", "apptainer"]] = "venv"
    python: Runtime[str] = ".venv-vllm/bin/python"
    """Interpreter of vLLM's own environment, relative to the checkout or absolute."""
    image: Runtime[str | None] = None
    """SIF made from containers/vllm.def, for `runtime: apptainer`."""
    container: Runtime[str] = "apptainer"
    """The container command; `singularity` on older sites."""
    model_path: Runtime[str | None] = None
    """Staged folder of the weights; None: the model's repo name, from the offline cache."""
    quantization: Science[str | None] = None
    dtype: Science[str] = "auto"
    kv_cache_dtype: Science[str] = "auto"
    tool_parser: Science[str | None] = None
    reasoning_parser: Science[str | None] = None
    chat_template: Science[str | None] = None
    """Absolute path of a template that replaces the model's own."""
    text_only: Science[bool] = False
    """Leave out the vision part of a model that has one."""
    enforce_eager: Runtime[bool] = False
    """No CUDA graphs and no compilation: a faster start, slower tokens."""
    prefix_caching: Science[bool] = True
    tensor_parallel: Runtime[Count] = 1
    max_num_seqs: Runtime[Count] = 16
    max_num_batched_tokens: Runtime[Count | None] = None
    block_size: Runtime[Count | None] = None
    state_interval_tokens: Runtime[Count | None] = None
    """Every so many tokens the server of a hybrid model keeps the model's state, so that an edited
    history finds one; a multiple of its block. None: at the end of each prompt only."""
    splice_store_gib: Runtime[Seconds | None] = None
    """Memory for keys of runs whose arm has `cache: splice`; None: the server cannot splice."""
    gpu_memory_utilization: Runtime[Share | None] = None
    flags: Runtime[tuple[str, ...]] = ()
    """Further arguments of `vllm serve`, as a list of words."""
    env: Runtime[Mapping[str, str]] = field(default_factory=dict)
    expected_start_s: Runtime[Seconds] = 300.0
    """How long a server takes to come up; what of a job's time is left for runs rests on it."""
    cache_tokens: Runtime[Count | None] = None
    """Tokens that the server's KV cache is expected to hold; None: unknown."""
    start_timeout_s: Runtime[Seconds] = 3600.0
    """The large cap under which a server that keeps logging may come up."""
    start_silence_s: Runtime[Seconds] = 900.0
    """A starting server whose log stood still for so long is given up."""
    stall_s: Runtime[Seconds] = 300.0
    """No tokens for so long while requests wait: the server hangs."""
    max_restarts: Runtime[Natural] = 3


FaultName = Literal[
    "http500", "hang", "slow", "truncated", "bad_arguments", "unknown_tool", "wrong_ids", "empty"
]
"""What the simulated agent's server can be asked to do wrong; `serving/sim/config` says what."""


@dataclass(frozen=True, kw_only=True)
class SimSpec:
    """The simulated agent's server (`model=sim`): a simulation, and named one everywhere."""

    latency_ms: Runtime[Amount] = 0.0
    tokens_per_s: Runtime[Seconds | None] = None
    """None: answers at once."""
    block_size: Science[Count] = 16
    unrepeatable: Science[Share] = added_science(0.0)
    """Share of the answers that a run with the same prompt and seed would not get again, as the
    batches of a real server make them."""
    faults: Runtime[Mapping[FaultName, Share]] = field(default_factory=dict)
    """Fault to the share of requests that meet it, such as `http500: 0.01`."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model as the experiment sees it."""

    name: Science[str]
    kind: Science[Literal["sim", "vllm", "endpoint"]]
    repo: Science[str]
    revision: Science[str | None] = None
    served_name: Runtime[str | None] = None
    """The name requests carry; None: `name`."""
    base_url: Runtime[str | None] = None
    """`kind: endpoint`: a server that is already running, up to and including `/v1`."""
    api_key_env: Runtime[str | None] = None
    """Environment variable that holds the key; the key itself never enters a file."""
    mode: Science[Literal["tools", "text"]] = "tools"
    """`text` for models without tool calls."""
    context_length: Science[Count] = 32768
    """Tokens of prompt and completion together."""
    max_tokens: Science[Count] = 4096
    """Cap of one completion; less where the window is nearly full."""
    sampling: Science[SamplingSpec] = SamplingSpec()
    chat_template_kwargs: Science[Mapping[str, Any]] = field(default_factory=dict)
    template_rules: Science[Literal["keep_reasoning", "drop_after_user", "no_reasoning"]] = (
        "keep_reasoning"
    )
    """What the chat template does with earlier reasoning once a user message follows."""
    extra_body: Science[Mapping[str, Any]] = field(default_factory=dict)
    """Further fields of every request body."""
    body: Science[Mapping[str, str | None]] = added_science({})
    """How this server spells the body: field to its other name, null leaves the field out."""
    token_counter: Science[str] = "chars"
    """`sim`, `served`, `qwen` or `chars`: how offline token counts are made."""
    return_token_ids: Runtime[bool] = False
    n_gpus: Runtime[Natural] = 0
    request_timeout_s: Runtime[Seconds] = 1800.0
    serve: Science[ServeSpec] = ServeSpec()
    sim: Science[SimSpec | None] = None

    def __post_init__(self) -> None:
        """Refuse a body that would no longer hold the conversation."""
        kept = {"messages", "tools"} & set(self.body)
        if kept:
            raise ValueError(
                f"body: {' and '.join(sorted(kept))} cannot be renamed or left out; a model "
                "without tool calls is `mode: text` (agent=mini_text)"
            )

    @property
    def request_name(self) -> str:
        """The model name that requests carry."""
        return self.served_name or self.name

    @property
    def evidence(self) -> Literal["live", "sim"]:
        """The label under which this model's numbers appear."""
        return "sim" if self.kind == "sim" else "live"
