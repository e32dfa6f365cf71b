"""What a line pruner needs beside planprune: packages and model files, looked for before a launch.

Imports neither PyTorch nor Transformers; whether a model can be loaded shows when a worker starts,
before its model server does.
"""

import importlib.util
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from pipeline.arms.line_pruning import LinePruning, LocalPruning, ServedPruning

PACKAGES = ("torch", "transformers")


def missing_parts(spec: LinePruning, *, text_mode: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what the pruner lacks here, as (parameter, what is wrong and what to do).

    A model without a staged folder is looked for in the hub's offline cache of this machine.
    """
    if isinstance(spec, ServedPruning):
        yield from _missing_server(spec, text_mode=text_mode)
    if not isinstance(spec, LocalPruning):
        return
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        yield "kind", missing_packages(spec.kind, missing)
        return
    problem = model_problem(spec)
    if problem is not None:
        yield ("model" if spec.path is None else "path"), problem


def missing_packages(kind: str, missing: list[str]) -> str:
    """Return what to say where packages are missing."""
    return (
        f"{kind} needs {', '.join(missing)}, which the extra `line-pruners` brings: "
        "pip install 'planprune[line-pruners]' (in a checkout: pip install -e '.[line-pruners]')"
    )


def model_problem(spec: LocalPruning) -> str | None:
    """Return why the pruner's model cannot be loaded from this machine; None where it can."""
    if spec.path is not None or Path(spec.model).is_dir():
        folder = Path(spec.path or spec.model)
        if (folder / "config.json").exists():
            return None
        return f"no model in {folder}: it has no config.json; {_remedy(spec)}"
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(spec.model, "config.json", revision=spec.revision)
    except HFValidationError:
        found = None
    if isinstance(found, str):
        return None
    return f"no folder and nothing in the offline cache is called {spec.model}; {_remedy(spec)}"


def _remedy(spec: LocalPruning) -> str:
    return (
        f"stage {spec.model} where there is a network (python -m pipeline.stage model --help) and"
        " name its folder: arms.ARM.policy.path=FOLDER"
    )


def _missing_server(spec: ServedPruning, *, text_mode: bool) -> Iterator[tuple[str, str]]:
    if spec.url is None:
        yield (
            "url",
            "give the address of a running SWE-Pruner server: arms.ARM.policy.url=http://HOST:PORT",
        )
    elif urllib.parse.urlsplit(spec.url).scheme not in ("http", "https"):
        yield "url", f"{spec.url!r} is no http address; write it as http://HOST:PORT"
    if spec.asks_focus and text_mode:
        yield (
            "kind",
            "its question is an argument of the bash tool, and this model makes no tool calls; "
            "choose a model with mode: tools",
        )
