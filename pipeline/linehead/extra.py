"""The one check for PyTorch, made before anything imports it."""

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
