"""Which engines a head is served in: those whose scores were compared with Transformers'.

Reads vLLM's configuration as an object and imports no vLLM.
"""

from typing import Any

from pipeline.linehead.serving.scorer import HeadMismatchError


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
        "--enforce-eager": not vllm_config.model_config.enforce_eager,
        "VLLM_USE_V2_MODEL_RUNNER=0": bool(getattr(vllm_config, "use_v2_model_runner", False)),
        "no speculative decoding": vllm_config.speculative_config is not None,
    }
    needed = [flag for flag, is_untested in untested.items() if is_untested]
    if needed:
        raise HeadMismatchError(
            f"line scores were compared with Transformers' only with {', '.join(needed)}; add "
            'that, or "allow_untested": true to kv_connector_extra_config and compare first '
            "(python -m pipeline.linehead.serving.compare)"
        )
