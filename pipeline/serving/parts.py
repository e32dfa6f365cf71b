"""What must lie on the file system before a server can be started, looked for before a launch."""

from pathlib import Path

from pipeline.serving.command import located
from pipeline.serving.staged import image_problem, model_problem
from pipeline.spec.model import ModelSpec

CHECKOUT = Path(__file__).resolve().parents[2]
"""What relative paths in a model's `serve` are relative to."""


def missing_parts(model: ModelSpec, *, strict: bool = False) -> dict[str, str]:
    """Return what a server for `model` needs on this file system and lacks, by config key.

    Each with what to do about it. A repository without a staged folder is not looked for: where
    the hub's cache lies on the nodes cannot be known here.

    Args:
        model: the model.
        strict: what runs must be known to be what was staged. The demo's models are let off.
    """
    serve = located(model, CHECKOUT).serve
    missing = {}
    if serve.runtime == "venv" and not Path(serve.python).exists():
        missing["serve.python"] = (
            f"no {serve.python}; make vLLM's environment with `make serve` (CPU=1 without a GPU), "
            "or name another one's interpreter"
        )
    if serve.runtime == "apptainer":
        problem = "no image is named" if serve.image is None else image_problem(Path(serve.image))
        if problem is not None:
            missing["serve.image"] = (
                f"{problem}; build it: sbatch slurm/build_vllm.sbatch {serve.image or 'vllm.sif'} "
                "(from containers/vllm.def)"
            )
    if strict and model.revision in (None, "COMMIT"):
        missing["revision"] = (
            f"no revision of {model.repo} is named, so nobody could say later what ran; say "
            "model.revision=COMMIT with its commit, or once for all in conf/site/mine.yaml"
        )
    if serve.model_path is not None:
        problem = model_problem(model, Path(serve.model_path), strict=strict)
        if problem is not None:
            missing["serve.model_path"] = f"{problem}; stage it: {_staging(model)}"
    return missing


def _staging(model: ModelSpec) -> str:
    if model.repo.startswith("planprune/") or model.name == "smollm2":
        return "containers/make_test_models.sh .venv-vllm .cache/models"
    return (
        f"python -m pipeline.stage model {model.repo} --revision {model.revision or 'COMMIT'} "
        f"--to {model.serve.model_path}"
    )
