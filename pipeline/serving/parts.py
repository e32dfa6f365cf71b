"""What must lie on the file system before a server can be started, looked for before a launch."""

from pathlib import Path

from pipeline.serving.command import located
from pipeline.spec.model import ModelSpec

CHECKOUT = Path(__file__).resolve().parents[2]
"""What relative paths in a model's `serve` are relative to."""


def missing_parts(model: ModelSpec) -> dict[str, str]:
    """Return what a server for `model` needs on this file system and lacks, by config key.

    Each with what to do about it. A repository without a staged folder is not looked for: where
    the hub's cache lies on the nodes cannot be known here.
    """
    serve = located(model, CHECKOUT).serve
    missing = {}
    if serve.runtime == "venv" and not Path(serve.python).exists():
        missing["serve.python"] = (
            f"no {serve.python}; make vLLM's environment with `make serve` (CPU=1 without a GPU), "
            "or name another one's interpreter"
        )
    if serve.runtime == "apptainer" and (serve.image is None or not Path(serve.image).exists()):
        missing["serve.image"] = (
            f"no image {serve.image or 'is named'}; build it: "
            "apptainer build vllm.sif containers/vllm.def"
        )
    if serve.model_path is not None and not (Path(serve.model_path) / "config.json").exists():
        missing["serve.model_path"] = (
            f"no model in {serve.model_path}; stage it: python -m pipeline.stage model --help "
            "(tiny, smollm2: containers/make_test_models.sh .venv-vllm .cache/models)"
        )
    return missing
