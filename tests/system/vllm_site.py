"""Where vLLM and its CPU models are on this machine.

`PLANPRUNE_VLLM_PYTHON` and `PLANPRUNE_MODELS` name them where they are not in the checkout.
"""

from pathlib import Path

from pipeline.host.environment import environment
from pipeline.planning.config import sweep_spec
from pipeline.spec.model import ModelSpec
from tests.words import words_of

CHECKOUT = Path(__file__).resolve().parents[2]
REMEDY = "`make serve CPU=1 && containers/make_test_models.sh .venv-vllm .cache/models` brings it"


def python() -> Path:
    """Return the interpreter of vLLM's environment, be it there or not."""
    return Path(environment().get("PLANPRUNE_VLLM_PYTHON", CHECKOUT / ".venv-vllm/bin/python"))


def model_path(name: str) -> Path:
    """Return the folder of a model that `make_test_models.sh` makes, be it there or not."""
    return Path(environment().get("PLANPRUNE_MODELS", CHECKOUT / ".cache/models")) / name


def found(name: str) -> bool:
    """Return whether vLLM and the model `name` are here."""
    return python().exists() and (model_path(name) / "config.json").exists()


def overrides(name: str) -> list[str]:
    """Return what selects the model `name` in a sweep, as it lies here."""
    return [
        f"model={name}",
        f"model.serve.python={python()}",
        f"model.serve.model_path={model_path(name)}",
    ]


def model(name: str, *more: str) -> ModelSpec:
    """Return the shipped model `name` as it lies here."""
    (spec,) = sweep_spec(words_of("+sweep=demo", *overrides(name), *more)).models.values()
    return spec
