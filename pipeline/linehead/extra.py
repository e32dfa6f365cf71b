"""The checks for PyTorch: that it is here, before anything imports it, and for its device."""

import importlib.util
from collections.abc import Sequence

PACKAGES = ("torch", "transformers", "safetensors")


class ExtraMissingError(Exception):
    """The extra `pruner` is not installed."""


def require_extra(packages: Sequence[str] = PACKAGES) -> None:
    """Return if the packages of the extra `pruner` can be imported; imports none of them.

    Raises:
        ExtraMissingError: with what to install.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ExtraMissingError(
            f"this needs {', '.join(missing)}, which the extra `pruner` brings: "
            "pip install 'planprune[pruner]' (in a checkout: pip install -e '.[pruner]')"
        )


def require_device(device: str) -> None:
    """Return if PyTorch can compute on `device`.

    Raises:
        ExtraMissingError: it cannot, with what to do.
    """
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts that it has it
        reason = str(error).splitlines()[0]
        raise ExtraMissingError(
            f"PyTorch cannot compute on device={device} here: {reason}; device=cpu works "
            "everywhere, device=cuda needs a GPU and PyTorch's CUDA build (make pruner)"
        ) from None
