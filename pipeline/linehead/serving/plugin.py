"""What vLLM calls in each of its processes at start (entry point group `vllm.general_plugins`)."""


def register() -> None:
    """Offer `LineHead<Architecture>` for every architecture that vLLM knows by name."""
    from vllm import ModelRegistry

    known = set(ModelRegistry.get_supported_archs())
    for name in sorted(known):
        ours = f"LineHead{name}"
        if not name.startswith("LineHead") and ours not in known:
            # A string: nothing is imported before a model of that name is served.
            ModelRegistry.register_model(ours, f"pipeline.linehead.serving.backbones:{ours}")
