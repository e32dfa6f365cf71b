"""Brings scores from the worker's table into the response of the request that asked.

vLLM's connectors move KV blocks between engines; this one moves none. On the scheduler's side it
notes where the wanted outputs are and which blocks the request has; when the last prompt token is
computed, the worker's side reads the scores and the request takes them along when it finishes.
A request with `max_tokens` of 1 ends in the same step and gets none. Imports vLLM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.tokenizers.registry import cached_tokenizer_from_config

from pipeline.linehead.lengths import length_bucket
from pipeline.linehead.serving.locate import located_outputs
from pipeline.linehead.serving.scorer import SCORING_ERRORS, HeadMismatchError, Scorer, current
from pipeline.views.kept_lines import OutputTokens
from pipeline.views.line_scores import encoded, response_params, wanted_texts


@dataclass(slots=True)
class Pending:
    """A request whose prompt is not all computed yet."""

    outputs: list[OutputTokens | str]
    n_prompt: int
    blocks: list[int] = field(default_factory=list)
    head_s: float | None = 0.0
    """Its share, by tokens, of the head's time in the steps so far; None where not measured."""


@dataclass(frozen=True, slots=True)
class Span:
    """What the worker is to read: slots of one output's tokens, and the column."""

    slots: list[int]
    column: int


@dataclass
class Wanted(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is not in this environment
    """From the scheduler to the workers: what to read after this step."""

    spans: dict[str, list[Span]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    """Of this step's tokens, those of each request that asks for scores."""


@dataclass
class Found(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """From a worker to the scheduler."""

    scores: dict[str, list[list[float]] | str] = field(default_factory=dict)
    head_s: dict[str, float | None] = field(default_factory=dict)

    def aggregate(self, other: "Found") -> "Found":
        """Return one worker's: with tensor parallelism all have computed the same."""
        self.scores.update(other.scores)
        self.head_s.update(other.head_s)
        return self


class LineScoreConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """The connector; one instance is the scheduler's, one is each worker's."""

    requires_kv_delivery = False

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._model_config = vllm_config.model_config
        self._tokenizer: Any = None
        self._group, group = _full_attention_group(kv_cache_config)
        self._layers = tuple(group.layer_names)
        self._block_size = group.kv_cache_spec.block_size
        self._n_blocks = kv_cache_config.num_blocks
        self._pending: dict[str, Pending] = {}
        self._waiting: dict[str, Pending] = {}
        """Read or being read; their requests are not finished yet."""
        self._received: dict[str, list[list[float]] | str] = {}
        self._found = Found()
        self._n_errors = 0

    # --- the scheduler's side ---
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:  # noqa: ARG002
        """Return that no tokens come from elsewhere."""
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Do nothing: `build_connector_meta` sees the blocks."""

    def on_new_request(self, request: Any) -> None:
        """Find the outputs that a request asks about."""
        texts = wanted_texts(request.kv_transfer_params)
        if not texts or request.prompt_token_ids is None:
            return
        try:
            if self._tokenizer is None:
                self._tokenizer = cached_tokenizer_from_config(self._model_config)
            outputs = located_outputs(self._tokenizer, request.prompt_token_ids, texts)
        except SCORING_ERRORS as error:
            outputs = [f"the output was not found: {type(error).__name__}: {error}"] * len(texts)
        self._pending[request.request_id] = Pending(
            outputs=outputs, n_prompt=len(request.prompt_token_ids)
        )

    def build_connector_meta(self, scheduler_output: Any) -> Wanted:
        """Return what the workers are to read once this step is computed."""
        wanted = Wanted()
        scheduled = scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            pending = self._pending.get(new.req_id)
            if pending is not None:
                pending.blocks = list(new.block_ids[self._group])
                self._read_when_done(wanted, new.req_id, new.num_computed_tokens, scheduled)
        cached = scheduler_output.scheduled_cached_reqs
        for place, req_id in enumerate(cached.req_ids):
            pending = self._pending.get(req_id)
            if pending is None:
                continue
            blocks = cached.new_block_ids[place]
            if req_id in cached.resumed_req_ids:
                pending.blocks = list(blocks[self._group])
            elif blocks is not None:
                pending.blocks += list(blocks[self._group])
            self._read_when_done(wanted, req_id, cached.num_computed_tokens[place], scheduled)
        total = scheduler_output.total_num_scheduled_tokens
        wanted.shares = {
            req_id: n / total
            for req_id, n in scheduled.items()
            if req_id in self._pending or req_id in self._waiting
        }
        return wanted

    def _read_when_done(
        self, wanted: Wanted, req_id: str, n_computed: int, scheduled: dict[str, int]
    ) -> None:
        pending = self._pending[req_id]
        if n_computed + scheduled[req_id] < pending.n_prompt:
            return
        self._waiting[req_id] = self._pending.pop(req_id)
        wanted.spans[req_id] = spans = []
        for place, output in enumerate(pending.outputs):
            if isinstance(output, str):
                continue
            try:
                slots = self._slots(pending, output)
            except SCORING_ERRORS as error:
                pending.outputs[place] = f"its slots are not known: {type(error).__name__}: {error}"
                continue
            spans.append(Span(slots, length_bucket(output.lines.n_lines)))

    def _slots(self, pending: Pending, output: OutputTokens) -> list[int]:
        size = self._block_size
        return [
            pending.blocks[place // size] * size + place % size
            for place in range(output.start, output.end)
        ]

    def update_connector_output(self, connector_output: Any) -> None:
        """Take what the workers have read."""
        found = connector_output.kv_connector_worker_meta
        if not isinstance(found, Found):
            return
        self._received.update(found.scores)
        for req_id, spent in found.head_s.items():
            request = self._pending.get(req_id) or self._waiting.get(req_id)
            if request is None:
                continue
            if spent is None or request.head_s is None:
                request.head_s = None
            else:
                request.head_s += spent

    def request_finished(
        self,
        request: Any,
        block_ids: Any,  # noqa: ARG002
    ) -> tuple[bool, dict[str, Any] | None]:
        """Return the scores of a request, for its response."""
        req_id = request.request_id
        self._pending.pop(req_id, None)
        waiting = self._waiting.pop(req_id, None)
        received = self._received.pop(req_id, "the prompt was not computed to its end")
        if waiting is None:
            return False, None
        return False, self._response(waiting, received)

    def request_finished_all_groups(
        self, request: Any, block_ids: Sequence[Any]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Return the same for a model with several groups of caches."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def _response(self, asked: Pending, received: list[list[float]] | str) -> dict[str, Any]:
        rest = iter(received if isinstance(received, list) else ())
        answers: list[dict[str, Any]] = []
        for output in asked.outputs:
            if isinstance(output, str):
                answers.append({"error": output})
            elif isinstance(received, str):
                answers.append({"error": received})
            else:
                answers.append(encoded(next(rest), output.lines))
        self._n_errors += sum("error" in answer for answer in answers)
        return response_params(answers, self._n_errors, head_s=asked.head_s)

    # --- a worker's side ---
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Make the table of scores beside the caches."""
        scorer = current()
        if scorer is None:
            architectures = self._model_config.architectures
            raise HeadMismatchError(
                f"the served model has no line head: add --hf-overrides "
                f'\'{{"architectures": ["LineHead{architectures[0]}"]}}\''
            )
        layer = next(name for name in self._layers if name in kv_caches)
        cache = kv_caches[layer]
        device = (cache[0] if isinstance(cache, list | tuple) else cache).device
        scorer.allocate(self._n_blocks * self._block_size, device, layer)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Load nothing."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Save nothing."""

    def wait_for_save(self) -> None:
        """Read the scores of the requests whose prompt this step completed."""
        if not self.has_connector_metadata():
            return
        wanted = self._get_connector_metadata()
        if not isinstance(wanted, Wanted):
            return
        scorer = current()
        spent = None if scorer is None else scorer.take_step_s()
        for req_id, share in wanted.shares.items():
            self._found.head_s[req_id] = None if spent is None else share * spent
        for req_id, spans in wanted.spans.items():
            self._found.scores[req_id] = _read(scorer, spans)

    def build_connector_worker_meta(self) -> Found | None:
        """Return what was read in this step."""
        found, self._found = self._found, Found()
        return found if found.scores or found.head_s else None


def _read(scorer: Scorer | None, spans: Sequence[Span]) -> list[list[float]] | str:
    if scorer is None:
        return "the served model has no line head"
    if scorer.failure is not None:
        return scorer.failure
    try:
        return [scorer.read(span.slots, span.column) for span in spans]
    except SCORING_ERRORS as error:
        return f"the scores could not be read: {type(error).__name__}: {error}"


def _full_attention_group(kv_cache_config: Any) -> tuple[int, Any]:
    """Return the first group of layers that keep every token, and its place.

    Windowed and recurrent layers forget slots; a hybrid model has at least one full group.
    """
    for place, group in enumerate(kv_cache_config.kv_cache_groups):
        spec = group.kv_cache_spec
        if "FullAttention" in type(spec).__name__ or "MLAAttention" in type(spec).__name__:
            return place, group
    kinds = {type(g.kv_cache_spec).__name__ for g in kv_cache_config.kv_cache_groups}
    raise HeadMismatchError(
        f"a line head needs layers with full attention; this model has {', '.join(sorted(kinds))}"
    )
