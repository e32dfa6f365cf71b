"""A real vLLM with a line head in it: its scores are Transformers', and an arm prunes by them.

The head is random: what it keeps means nothing, but it must be the same everywhere. The plugin is
found through a folder on PYTHONPATH, as it would be if planprune were installed beside vLLM.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from pipeline.host.environment import environment
from pipeline.host.process import run_command
from pipeline.records.layout import Layout
from pipeline.serving.server import VllmServer
from pipeline.spec.model import ModelSpec
from tests.system import vllm_site
from tests.system.test_vllm_rollout import launch, rows

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

MAKE_HEAD = """
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
    "backbone": "random", "architectures": config["architectures"],
    "hidden_size": config["hidden_size"], "head": asdict(HeadSettings()), "threshold": 0.5,
})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that makes the plugin known to an interpreter that has it on its path."""
    folder = tmp_path_factory.mktemp("site")
    # Another name than planprune: the checkout's own metadata may come first and lack the plugin.
    info = folder / "linehead_plugin-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linehead-plugin\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nlinehead = pipeline.linehead.serving.plugin:register\n"
    )
    return folder


@pytest.fixture(scope="module")
def python_path(site: Path) -> str:
    return f"{site}:{vllm_site.CHECKOUT}"


def in_vllm(*argv: str, python_path: str) -> str:
    """Run vLLM's interpreter with the project on its path."""
    env = {**environment(), "PYTHONPATH": python_path, "HF_HUB_OFFLINE": "1"}
    done = run_command(
        [str(vllm_site.python()), *argv], timeout_s=600, env=env, cwd=vllm_site.CHECKOUT
    )
    assert done.returncode == 0, done.text
    return done.text


@pytest.fixture(scope="module")
def overrides(
    tmp_path_factory: pytest.TempPathFactory, python_path: str, require: Callable[..., None]
) -> list[str]:
    """Return what gives the tiny model a random head."""
    require("vllm", vllm_site.found("tiny"), remedy=vllm_site.REMEDY)
    head = tmp_path_factory.mktemp("head")
    in_vllm("-c", MAKE_HEAD, str(vllm_site.model_path("tiny")), str(head), python_path=python_path)
    transfer = {
        "kv_connector": "LineScoreConnector",
        "kv_connector_module_path": "pipeline.linehead.serving.connector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"head": str(head)},
    }
    flags = [
        *("--no-enable-chunked-prefill", "--kv-cache-memory-bytes", "67108864"),
        *("--hf-overrides", json.dumps({"architectures": ["LineHeadQwen3ForCausalLM"]})),
        *("--kv-transfer-config", json.dumps(transfer)),
    ]
    quoted = ",".join(f"'{flag}'" for flag in flags)
    return [
        f"model.serve.flags=[{quoted}]",
        f"model.serve.env={{PYTHONPATH: '{python_path}'}}",
        "model.serve.dtype=float32",
    ]


@pytest.fixture(scope="module")
def server(
    overrides: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[VllmServer, ModelSpec]]:
    folder = tmp_path_factory.mktemp("vllm")
    model = vllm_site.model("tiny", *overrides)
    running = VllmServer(
        model,
        log=folder / "server.log",
        env=environment(),
        node="localhost",
        scratch=folder / "scratch",
    )
    yield running, model
    running.stop()


def test_scores_equal_those_of_transformers_whatever_the_cache_holds(
    server: tuple[VllmServer, ModelSpec], python_path: str
) -> None:
    running, model = server
    flags = list(model.serve.flags)
    head = json.loads(flags[flags.index("--kv-transfer-config") + 1])["kv_connector_extra_config"]
    printed = in_vllm(
        *("-m", "pipeline.linehead.serving.compare", running.base_url),
        *("--model", str(vllm_site.model_path("tiny")), "--head", head["head"]),
        *("--name", model.request_name, "--tolerance", "1e-3"),
        python_path=python_path,
    )
    # Among them prefix hits, a rewritten history and six requests at once.
    assert "rewritten history" in printed
    assert "at once, 5" in printed
    assert "largest difference" in printed


def test_the_arm_prunes_by_the_servers_scores(tmp_path: Path, overrides: list[str]) -> None:
    results = tmp_path / "results"
    launch(
        results,
        "demo",
        12,
        *vllm_site.overrides("tiny"),
        *overrides,
        "+arm@arms.swe_pruner_pro=swe_pruner_pro",
        # A random head is never sure: all its scores are near one half.
        "arms.swe_pruner_pro.policy.threshold=0.5",
        "arms.swe_pruner_pro.policy.min_chars=200",
        *("~arms.sham_cleanup", "~arms.no_plan", "~arms.plan_prune"),
    )
    runs = {run["arm"]: run for run in rows(results, "runs")}
    assert set(runs) == {"full_history", "swe_pruner_pro"}
    assert not [r for r in runs.values() if str(r["failure_class"]).startswith("infra")]
    calls = [c for c in rows(results, "calls") if c["run_id"] == runs["swe_pruner_pro"]["run_id"]]
    answers = [json.loads(str(c["server_answer"])) for c in calls if c["server_answer"]]
    assert answers
    outputs = [o for a in answers for o in a["answer"]["line_scores"]["outputs"]]
    assert all("error" not in output for output in outputs)
    assert all(0 <= s <= 1 for output in outputs for s in output["scores"])
    # Exact accounting and server agree on every call, with rewritten outputs too.
    assert [c["cached_tokens"] for c in calls] == [c["lcp_block_tokens"] for c in calls]
    edits = ds.dataset(Layout(results).table("calls"), format="parquet").to_table().to_pylist()
    assert any("line_prune" in (c["view_edits"] or "") for c in edits)
