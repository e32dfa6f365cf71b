"""Every architecture that vLLM knows, once more with a line head on it.

`LineHead<Architecture>` subclasses vLLM's own class and adds one thing: after the forward pass the
head sees the hidden states that the model returns, which are those after the final norm. Classes
are made when they are asked for. Imports vLLM.
"""

import logging
from pathlib import Path
from typing import Any

from vllm import ModelRegistry
from vllm.forward_context import get_forward_context, is_forward_context_available

from pipeline.linehead.backbone_name import backbone_name
from pipeline.linehead.serving.engine_check import check_supported, head_settings
from pipeline.linehead.serving.scorer import Scorer, set_current

_log = logging.getLogger(__name__)

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
            check_supported(vllm_config)
            super().__init__(vllm_config=vllm_config, prefix=prefix)
            if base.__name__ not in PROVEN:
                _log.warning(
                    "line scores of %s were never compared with Transformers': compare them "
                    "(python -m pipeline.linehead.serving.compare)",
                    base.__name__,
                )
            settings = head_settings(vllm_config)
            scorer = Scorer(
                Path(settings["head"]),
                hidden_size=vllm_config.model_config.hf_text_config.hidden_size,
                served=backbone_name(
                    vllm_config.model_config.model, vllm_config.model_config.revision
                ),
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
