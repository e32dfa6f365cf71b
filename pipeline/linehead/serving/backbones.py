"""Every architecture that vLLM knows, once more with a line head on it.

`LineHead<Architecture>` subclasses vLLM's own class and adds one thing: after the forward pass the
head sees the hidden states that the model returns, which are those after the final norm. Classes
are made when they are asked for. Imports vLLM.
"""

from pathlib import Path
from typing import Any

from vllm import ModelRegistry
from vllm.forward_context import get_forward_context, is_forward_context_available

from pipeline.linehead.serving.scorer import HeadMismatchError, Scorer, set_current

PREFIX = "LineHead"

PROVEN = ("LlamaForCausalLM", "Qwen3ForCausalLM")
"""Architectures whose scores were compared with Transformers' in tests."""


def __getattr__(name: str) -> Any:
    if not name.startswith(PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = ModelRegistry.models[name.removeprefix(PREFIX)].load_model_cls()
    made = with_line_head(base)
    globals()[name] = made
    return made


def with_line_head(base: Any) -> Any:
    """Return a subclass of a vLLM model class whose tokens are scored."""

    class WithLineHead(base):  # type: ignore[misc]  # vLLM is not in this environment
        def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            check_supported(vllm_config)
            settings = head_settings(vllm_config)
            scorer = Scorer(
                Path(settings["head"]),
                hidden_size=vllm_config.model_config.hf_text_config.hidden_size,
            )
            # No submodule: the loader would look for the head's weights in the checkpoint.
            self._line_scorer = scorer
            set_current(scorer)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            hidden = super().forward(*args, **kwargs)
            if is_forward_context_available():
                self._line_scorer.after_forward(hidden, get_forward_context().slot_mapping)
            return hidden

    WithLineHead.__name__ = WithLineHead.__qualname__ = f"{PREFIX}{base.__name__}"
    WithLineHead.__module__ = __name__
    return WithLineHead


def head_settings(vllm_config: Any) -> dict[str, Any]:
    """Return the connector's settings, where `head` names the head.

    Raises:
        HeadMismatchError: there is no connector, or no head in its settings.
    """
    transfer = vllm_config.kv_transfer_config
    settings = dict(transfer.kv_connector_extra_config or {}) if transfer is not None else {}
    if "head" not in settings:
        raise HeadMismatchError(
            "a line head needs --kv-transfer-config with kv_connector LineScoreConnector and "
            '"kv_connector_extra_config": {"head": FOLDER}; see docs/linehead.md'
        )
    return settings


def check_supported(vllm_config: Any) -> None:
    """Refuse engines in which scores would be wrong, or in which nobody has compared them yet.

    Raises:
        HeadMismatchError: with the flag that helps.
    """
    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        raise HeadMismatchError("a line head needs --pipeline-parallel-size 1")
    if head_settings(vllm_config).get("allow_untested"):
        return
    untested = {
        "--tensor-parallel-size 1": parallel.tensor_parallel_size > 1,
        "--enforce-eager": not vllm_config.model_config.enforce_eager,
        "VLLM_USE_V2_MODEL_RUNNER=0": bool(getattr(vllm_config, "use_v2_model_runner", False)),
        "no speculative decoding": vllm_config.speculative_config is not None,
    }
    needed = [flag for flag, is_untested in untested.items() if is_untested]
    if needed:
        raise HeadMismatchError(
            f"line scores are compared with Transformers' only under {', '.join(needed)}; add "
            'that, or "allow_untested": true to kv_connector_extra_config and compare first '
            "(benchmarks/linehead_server.py)"
        )
