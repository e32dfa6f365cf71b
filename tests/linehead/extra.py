"""Skips what needs PyTorch where it is not installed; `REQUIRE=torch` makes that a failure."""

import importlib.util

import pytest

from pipeline.host.environment import environment


def need_torch() -> None:
    """Return where PyTorch, transformers and safetensors can be imported; else skip the module."""
    names = ("torch", "transformers", "safetensors")
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing:
        return
    message = f"{', '.join(missing)} is not here; install the extra `pruner`"
    if "torch" in environment().get("REQUIRE", "").replace(",", " ").split():
        pytest.fail(f"{message} (REQUIRE names torch)", pytrace=False)
    pytest.skip(message, allow_module_level=True)
