"""The store inside vLLM: a connector that gives text behind an edit its keys at the new place.

The scheduler's side decides by text (`index`) what a prompt can take over and what is to be saved;
the worker's side copies and rotates (`keys`). A load that fails is reported block by block, and
vLLM computes them. Imports vLLM. Its places that this rests on are listed in docs/splice.md.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)
from vllm.forward_context import get_forward_context

from pipeline.serving.splice.engine_check import check_supported, rope_theta
from pipeline.serving.splice.index import Asked, Claim, Span, SpliceIndex
from pipeline.serving.splice.keys import CpuCache, rotated

_log = logging.getLogger(__name__)

DEFAULT_STORE_GIB = 1.0


@dataclass(slots=True)
class _Blocks:
    """A request's blocks, and what it will say of itself."""

    blocks: list[int]
    n_prompt: int
    n_computed: int = 0
    n_moved: int = 0
    n_admissions: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Stored text that goes into a request's blocks from `start` on."""

    blocks: list[int]
    start: int
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Save:
    """Computed text that becomes a part of the store."""

    blocks: list[int]
    start: int
    span: Span


@dataclass
class Orders(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is not in this environment
    """From the scheduler to the worker, for one step."""

    loads: dict[str, Load] = field(default_factory=dict)
    saves: dict[str, list[Save]] = field(default_factory=dict)
    freed: list[int] = field(default_factory=list)


class SpliceConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """The connector; one instance is the scheduler's, one the worker's."""

    requires_kv_delivery = False

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        check_supported(vllm_config, kv_cache_config)
        (group,) = kv_cache_config.kv_cache_groups
        spec = group.kv_cache_spec
        self._block_size = spec.block_size
        self._theta = rope_theta(vllm_config)
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
        bytes_a_token = spec.page_size_bytes // spec.block_size * len(group.layer_names)
        limit_bytes = float(extra.get("store_gib", DEFAULT_STORE_GIB)) * (1 << 30)
        self._index = SpliceIndex(max_tokens=int(limit_bytes // bytes_a_token))
        self._claims: dict[str, Claim] = {}
        self._blocks: dict[str, _Blocks] = {}
        self._parts: dict[int, Any] = {}
        self._raw_caches: dict[str, Any] = {}
        self._cache: CpuCache | None = None
        self._failed_blocks: set[int] = set()

    # --- the scheduler's side ---
    def on_new_request(self, request: Any) -> None:
        """Note a request that takes part."""
        asked = Asked.of(request.kv_transfer_params)
        if asked is not None and request.prompt_token_ids is not None:
            self._index.begin(request.request_id, asked, request.prompt_token_ids)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        """Return how many tokens behind the server's own cache the store has."""
        req_id = request.request_id
        self._claims.pop(req_id, None)
        if self._index.live(req_id) is None:
            return 0, False
        claim = self._index.claim(req_id, list(request.all_token_ids), num_computed_tokens)
        if claim.n_tokens:
            self._claims[req_id] = claim
        return claim.n_tokens, False

    def update_state_after_alloc(
        self,
        request: Any,
        blocks: Any,  # noqa: ARG002
        num_external_tokens: int,
    ) -> None:
        """Drop a claim that the scheduler did not take up."""
        claim = self._claims.get(request.request_id)
        if claim is not None and num_external_tokens != claim.n_tokens:
            del self._claims[request.request_id]

    def build_connector_meta(self, scheduler_output: Any) -> Orders:
        """Return what the worker loads before and saves after this step."""
        orders, scheduled = Orders(), scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            if self._index.live(new.req_id) is not None:
                n_prompt = len(new.prompt_token_ids)
                self._blocks[new.req_id] = _Blocks([], n_prompt)
                self._admit(orders, new.req_id, new.block_ids[0], new.num_computed_tokens)
                self._compute(orders, new.req_id, new.num_computed_tokens, scheduled)
        cached = scheduler_output.scheduled_cached_reqs
        for place, req_id in enumerate(cached.req_ids):
            if req_id not in self._blocks:
                continue
            blocks, n_before = cached.new_block_ids[place], cached.num_computed_tokens[place]
            if req_id in cached.resumed_req_ids:
                self._admit(orders, req_id, blocks[0], n_before)
            elif blocks is not None:
                self._blocks[req_id].blocks += list(blocks[0])
            self._compute(orders, req_id, n_before, scheduled)
        orders.freed = self._index.freed()
        return orders

    def _admit(self, orders: Orders, req_id: str, blocks: Sequence[int], n_computed: int) -> None:
        known, claim = self._blocks[req_id], self._claims.pop(req_id, None)
        known.blocks = list(blocks)
        known.n_admissions += 1
        saved = self._index.admitted(req_id, n_computed, claim)
        orders.saves[req_id] = [Save(known.blocks[:], at, span) for at, span in saved]
        if claim is not None:
            known.n_moved += claim.n_moved
            orders.loads[req_id] = Load(known.blocks[:], claim.start, claim.spans)

    def _compute(
        self, orders: Orders, req_id: str, n_before: int, scheduled: dict[str, int]
    ) -> None:
        known, live = self._blocks[req_id], self._index.live(req_id)
        if live is None:
            return
        n_after = n_before + scheduled[req_id]
        known.n_computed += max(min(n_after, known.n_prompt) - n_before, 0)
        # An answer is saved a block at a time.
        if n_after > known.n_prompt and n_after - live.growing.n_tokens < self._block_size:
            return
        saved = self._index.computed(req_id, n_before, n_after)
        orders.saves.setdefault(req_id, []).extend(
            Save(known.blocks[:], at, span) for at, span in saved
        )

    def request_finished(
        self,
        request: Any,
        block_ids: Any,  # noqa: ARG002
    ) -> tuple[bool, dict[str, Any] | None]:
        """Return, for the response, how the prompt's tokens were come by."""
        req_id = request.request_id
        self._claims.pop(req_id, None)
        known = self._blocks.pop(req_id, None)
        if self._index.live(req_id) is None:
            return False, None
        completed = "ABORTED" not in request.status.name
        self._index.finish(req_id, list(request.all_token_ids), completed=completed)
        if known is None:
            return False, None
        return False, {
            "splice": {
                "rotated": known.n_moved,
                "computed": known.n_computed,
                "admissions": known.n_admissions,
                "stored": self._index.n_tokens,
            }
        }

    def request_finished_all_groups(
        self, request: Any, block_ids: Sequence[Any]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Return the same; there is one group."""
        return self.request_finished(request, block_ids)

    # --- the worker's side ---
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Keep the caches; their inner order is found when the first text moves."""
        self._raw_caches = kv_caches
        layer = next(iter(kv_caches))
        cache = kv_caches[layer]
        if not isinstance(cache, torch.Tensor) or cache.device.type != "cpu" or cache.ndim != 4:
            raise ValueError(
                "cache: splice knows the order of keys in vLLM's CPU cache only, so far; serve the"
                " model without serve.splice_store_gib (docs/splice.md)"
            )

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Put stored text into the blocks of the requests that take it over."""
        orders = self._orders()
        if not orders.loads:
            return
        for req_id, load in orders.loads.items():
            started = time.perf_counter()
            try:
                n_tokens = self._load(load, self._cpu_cache(forward_context))
            except (KeyError, RuntimeError, ValueError) as error:
                _log.warning("splice: a load failed and is computed: %r", error)
                size = self._block_size
                end = load.start + sum(span.n for span in load.spans)
                self._failed_blocks.update(load.blocks[load.start // size : -(-end // size)])
                kept = [s for s in orders.saves.get(req_id, ()) if s.start < load.start]
                orders.saves[req_id] = kept
                continue
            _log.debug("splice: %d tokens in %.4f s", n_tokens, time.perf_counter() - started)

    def _load(self, load: Load, cache: CpuCache) -> int:
        at, shifts, stored = load.start, [], []
        for span in load.spans:
            stored.append(self._parts[span.part][:, :, span.start : span.start + span.n])
            shifts.append(torch.full((span.n,), at - span.origin))
            at += span.n
        moved = torch.cat(shifts)
        for layer in range(len(cache.caches)):
            keys, values = torch.cat([part[layer] for part in stored], dim=1)
            if moved.any():
                keys = rotated(keys, moved, self._theta)
            cache.write(layer, load.blocks, load.start, keys, values)
        return len(moved)

    def _cpu_cache(self, forward_context: Any) -> CpuCache:
        if self._cache is None:
            layer = forward_context.no_compile_layers[next(iter(self._raw_caches))]
            isa = str(getattr(layer, "isa", "vec"))
            self._cache = CpuCache(self._raw_caches, isa, ops.cpu_attn_reshape_and_cache)
        return self._cache

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Wait for nothing: loads are over before the step."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Save nothing by layer."""

    def wait_for_save(self) -> None:
        """Copy what the step computed, and free what nobody needs."""
        orders = self._orders()
        for saves in orders.saves.values():
            for save in saves:
                cache = self._cpu_cache(get_forward_context())
                end = save.start + save.span.n
                self._parts[save.span.part] = cache.read(save.blocks, save.start, end)
        for part in orders.freed:
            self._parts.pop(part, None)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Return the blocks that this step was to load and did not."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def _orders(self) -> Orders:
        found = self._get_connector_metadata() if self.has_connector_metadata() else None
        return found if isinstance(found, Orders) else Orders()
