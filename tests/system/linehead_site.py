"""vLLM with our plugin and without: interpreters, servers, heads and checks for the line head.

The plugin is found through a folder on PYTHONPATH, as it would be if planprune were installed
beside vLLM.
"""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.host.environment import environment
from pipeline.host.process import run_command, start_group
from pipeline.serving.ports import take_lane
from tests.system import vllm_site

RANDOM_HEAD = """
import json, sys, torch
from dataclasses import asdict
from pathlib import Path
from pipeline.linehead.checkpoint import save_head
from pipeline.linehead.head import LineHead
from pipeline.linehead.settings import HeadSettings
config = json.loads((Path(sys.argv[1]) / "config.json").read_text())
torch.manual_seed(0)
head = LineHead(config["hidden_size"])
torch.nn.init.normal_(head.lengths.weight, std=0.5)
save_head(Path(sys.argv[2]), head, {
    "backbone": Path(sys.argv[1]).name, "revision": None, "architectures": config["architectures"],
    "hidden_size": config["hidden_size"], "head": asdict(HeadSettings()), "threshold": 0.5,
})
"""

REFUSALS = """
import json, sys
from vllm.engine.arg_utils import EngineArgs
from pipeline.linehead.serving.engine_check import check_supported
told = {}
for name, arguments in json.loads(sys.argv[1]).items():
    try:
        check_supported(EngineArgs(**arguments).create_engine_config())
    except ValueError as error:
        told[name] = str(error)
print("TOLD", json.dumps(told))
"""


def plugin_path(folder: Path) -> str:
    """Return the PYTHONPATH that makes the plugin known; `folder` gets what says so."""
    # Another name than planprune: the checkout's own metadata may come first and lack the plugin.
    info = folder / "linehead_plugin-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linehead-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nlinehead = pipeline.linehead.serving.plugin:register\n"
    )
    return f"{folder}:{vllm_site.CHECKOUT}"


def in_vllm(*argv: str, python_path: str) -> str:
    """Return what vLLM's interpreter prints, with the project on its path."""
    env = {**environment(), "PYTHONPATH": python_path, "HF_HUB_OFFLINE": "1"}
    done = run_command(
        [str(vllm_site.python()), *argv], timeout_s=600, env=env, cwd=vllm_site.CHECKOUT
    )
    assert done.returncode == 0, done.text
    return done.text


def random_head(model: str, folder: Path, python_path: str) -> Path:
    """Return a head for a model that was never trained: what it keeps means nothing."""
    where = (str(vllm_site.model_path(model)), str(folder))
    in_vllm("-c", RANDOM_HEAD, *where, python_path=python_path)
    return folder


def engine_words(head: Path, architecture: str) -> dict[str, Any]:
    """Return vLLM's two settings that put `head` on the model."""
    return {
        "hf-overrides": {"architectures": [f"LineHead{architecture}"]},
        "kv-transfer-config": {
            "kv_connector": "LineScoreConnector",
            "kv_connector_module_path": "pipeline.linehead.serving.connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"head": str(head)},
        },
    }


def sweep_words(
    head: Path, architecture: str, python_path: str, *, cache_mb: int = 128, **variables: str
) -> list[str]:
    """Return the overrides of a sweep whose server has `head` on its model."""
    flags = ["--no-enable-chunked-prefill", "--kv-cache-memory-bytes", str(cache_mb << 20)]
    for name, value in engine_words(head, architecture).items():
        flags += [f"--{name}", json.dumps(value)]
    env = ", ".join(f"{k}: '{v}'" for k, v in {"PYTHONPATH": python_path, **variables}.items())
    quoted = ",".join(f"'{flag}'" for flag in flags)
    return [
        f"model.serve.flags=[{quoted}]",
        f"model.serve.env={{{env}}}",
        "model.serve.dtype=float32",
    ]


@contextlib.contextmanager
def pooling_server(model: str, log: Path) -> Iterator[str]:
    """Yield the URL of a stock vLLM server that gives the states of a model's tokens."""
    lane = take_lane(start=0)
    port, internal = lane.http_port, lane.internal_port
    lane.close()
    argv = [
        *(str(vllm_site.python()), "-m", "vllm.entrypoints.cli.main"),
        *("serve", str(vllm_site.model_path(model)), "--host", "127.0.0.1", "--port", str(port)),
        *("--runner", "pooling", "--convert", "embed", "--pooler-config.task", "token_embed"),
        *("--dtype", "float32", "--max-model-len", "8192", "--max-num-batched-tokens", "8192"),
        *("--enforce-eager", "--kv-cache-memory-bytes", "67108864"),
    ]
    env = {
        **environment(),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PORT": str(internal),
    }
    child = start_group(argv, env=env, log=log)
    try:
        _wait_for_health(port, child.alive, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.stop(grace_s=15.0)


def _wait_for_health(port: int, alive: Any, log: Path, limit_s: float = 300.0) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + limit_s
    while time.monotonic() < until and alive():
        try:
            with opener.open(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the pooling server did not come up:\n{log.read_text()[-3000:]}")


def chat(base_url: str, name: str, contents: Sequence[str], params: dict[str, Any]) -> Any:
    """Return a server's answer to a conversation, with `kv_transfer_params` in the request."""
    messages = [{"role": "user", "content": content} for content in contents]
    body = {"model": name, "messages": messages, "max_tokens": 3, "kv_transfer_params": params}
    request = urllib.request.Request(
        f"{base_url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as response:
        return json.load(response)
