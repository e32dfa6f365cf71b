"""A model's spec as vLLM's command line and environment. Pure: nothing is looked up or started.

Owns every flag that vLLM is given and every variable it sees, for its own venv and for a container
image. Flags come from `ServeSpec`; what is not said there is left to vLLM, and a switch that is off
is not written out unless vLLM would have it on. Ports, folders and processes are `server`'s.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from pipeline.spec.model import ModelSpec, ServeSpec

HOST = "127.0.0.1"
_NOT_PASSED_ON = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONSTARTUP"})
"""Of our own interpreter; vLLM's would stumble over them."""


def vllm_argv(model: ModelSpec, *, port: int, binds: tuple[str, ...] = ()) -> list[str]:
    """Return the command that serves `model` on `port` of this node's loopback.

    Args:
        model: with absolute paths; see `located`.
        port: of the HTTP server.
        binds: for a container, further folders that it must see, such as the caches'.

    Raises:
        ValueError: a container runtime without an image.
    """
    serve = model.serve
    return [
        *_program(model, binds),
        *("serve", serve.model_path or model.repo),
        *("--host", HOST, "--port", str(port)),
        *("--served-model-name", model.request_name),
        *("--max-model-len", str(model.context_length)),
        *("--dtype", serve.dtype),
        # Sampling is what conf says; without this the repo's generation_config would add to it.
        *("--generation-config", "vllm"),
        *_revision(model),
        *_valued(serve),
        *_switches(serve),
        *serve.flags,
    ]


def vllm_environment(
    model: ModelSpec, *, base: Mapping[str, str], cache: Path, internal_port: int, node: str
) -> dict[str, str]:
    """Return the whole environment of that command.

    Args:
        model: its `serve.env` has the last word.
        base: this process's environment, passed on but for what is our interpreter's own.
        cache: folder on the node's own disk, of this server alone: compiled kernels of servers
            that share one have been corrupted.
        internal_port: first of the ports that the server's own processes use among themselves.
        node: this node's name, which no proxy may be asked for.
    """
    local = ",".join(dict.fromkeys((HOST, "localhost", node)))
    proxies = {base.get("NO_PROXY", ""), base.get("no_proxy", "")} - {""}
    no_proxy = ",".join([local, *sorted(proxies)])
    own = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "VLLM_PORT": str(internal_port),
        "VLLM_HOST_IP": HOST,
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "FLASHINFER_WORKSPACE_BASE": str(cache),
        **model.serve.env,
    }
    kept = {name: value for name, value in base.items() if name not in _NOT_PASSED_ON}
    if model.serve.runtime == "venv":
        return kept | own
    # `--cleanenv` keeps the node's modules out of the container; what is named so gets in.
    prefix = f"{PurePosixPath(model.serve.container).name.upper()}ENV_"
    passed = {name: base[name] for name in ("CUDA_VISIBLE_DEVICES", "HF_HOME") if name in base}
    return kept | {f"{prefix}{name}": value for name, value in (passed | own).items()}


def located(model: ModelSpec, root: Path) -> ModelSpec:
    """Return `model` with the paths of its `serve` taken from `root`, where they are relative."""
    serve = model.serve
    return replace(
        model,
        serve=replace(
            serve,
            python=str(root / Path(serve.python).expanduser()),
            image=None if serve.image is None else str(root / Path(serve.image).expanduser()),
            model_path=(
                None
                if serve.model_path is None
                else str(root / Path(serve.model_path).expanduser())
            ),
        ),
    )


def _program(model: ModelSpec, binds: tuple[str, ...]) -> list[str]:
    serve = model.serve
    if serve.runtime == "venv":
        # By module: a script's first line holds an absolute path that may be too long or moved.
        return [serve.python, "-m", "vllm.entrypoints.cli.main"]
    if serve.image is None:
        raise ValueError(
            f"model {model.name}: serve.runtime=apptainer needs serve.image, the SIF made from "
            "containers/vllm.def"
        )
    argv = [serve.container, "exec", "--cleanenv"]
    if model.n_gpus:
        argv.append("--nv")
    for folder in (*binds, *([serve.model_path] if serve.model_path else [])):
        argv += ["--bind", folder]
    return [*argv, serve.image, "vllm"]


def _revision(model: ModelSpec) -> list[str]:
    # A staged folder has one revision, and a folder with a revision is refused by vLLM.
    if model.revision is None or model.serve.model_path is not None:
        return []
    return ["--revision", model.revision]


def _valued(serve: ServeSpec) -> list[str]:
    """Return the flags that have a value, where the value says something."""
    table = {
        "--tensor-parallel-size": serve.tensor_parallel if serve.tensor_parallel > 1 else None,
        "--quantization": serve.quantization,
        "--kv-cache-dtype": None if serve.kv_cache_dtype == "auto" else serve.kv_cache_dtype,
        "--max-num-seqs": serve.max_num_seqs,
        "--max-num-batched-tokens": serve.max_num_batched_tokens,
        "--block-size": serve.block_size,
        "--prefix-cache-retention-interval": serve.state_interval_tokens,
        "--gpu-memory-utilization": serve.gpu_memory_utilization,
        "--tool-call-parser": serve.tool_parser,
        "--reasoning-parser": serve.reasoning_parser,
        "--chat-template": serve.chat_template,
        "--kv-transfer-config": _splice_store(serve),
    }
    return [
        word for flag, value in table.items() if value is not None for word in (flag, str(value))
    ]


def _splice_store(serve: ServeSpec) -> str | None:
    if serve.splice_store_gib is None:
        return None
    settings = {
        "kv_connector": "SpliceConnector",
        "kv_connector_module_path": "pipeline.serving.splice.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store_gib": serve.splice_store_gib},
    }
    return json.dumps(settings)


def _switches(serve: ServeSpec) -> list[str]:
    table = {
        # The only truth about cached tokens that is by request.
        "--enable-prompt-tokens-details": True,
        "--enable-auto-tool-choice": serve.tool_parser is not None,
        "--enable-prefix-caching": serve.prefix_caching,
        # On by default, so that off has to be said.
        "--no-enable-prefix-caching": not serve.prefix_caching,
        "--enforce-eager": serve.enforce_eager,
        # One line a request and one a look at the metrics would fill a shared disk with nothing.
        "--disable-uvicorn-access-log": True,
        "--language-model-only": serve.text_only,
    }
    return [flag for flag, on in table.items() if on]
