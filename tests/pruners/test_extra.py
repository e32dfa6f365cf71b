"""What a line pruner lacks is said before anything starts, with what to do."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import pruners
from pipeline.arms.full_history import FullHistory
from pipeline.arms.line_pruning import LinePruning
from pipeline.arms.rag import Rag
from pipeline.arms.swe_pruner import SwePruner
from pipeline.arms.table import KINDS
from pipeline.protocols import PrunerError
from pipeline.pruners import extra
from pipeline.pruners.extra import missing_parts
from pipeline.pruners.pool import Guarded, PrunerPool
from pipeline.records.failure import NodeError
from pipeline.spec.arm import ArmSpec
from pipeline.views.policy import PruneRequest
from tests.pruners.outputs import request
from tests.pruners.prune_server import PruneServer


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if PyTorch were there; nothing here loads it."""
    monkeypatch.setattr(extra, "PACKAGES", ())


def test_missing_packages_come_with_the_command_that_installs_them(monkeypatch) -> None:
    monkeypatch.setattr(extra, "PACKAGES", ("json", "torch_that_is_not_there"))
    ((parameter, problem),) = missing_parts(Rag(model="m"))
    assert parameter == "kind"
    assert "torch_that_is_not_there" in problem
    assert "pip install 'planprune[line-pruners]'" in problem


@pytest.mark.usefixtures("installed")
def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    ((parameter, problem),) = missing_parts(Rag(model="BAAI/x", path=str(tmp_path)))
    assert parameter == "path"
    assert str(tmp_path) in problem
    assert "pipeline.stage model" in problem
    (tmp_path / "config.json").write_text("{}")
    assert list(missing_parts(Rag(model="BAAI/x", path=str(tmp_path)))) == []
    assert list(missing_parts(Rag(model=str(tmp_path)))) == []


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["nobody/has-this-model", "not a name //"])
def test_a_model_that_is_not_in_the_offline_cache_is_named(name: str) -> None:
    pytest.importorskip("huggingface_hub")
    ((parameter, problem),) = missing_parts(Rag(model=name))
    assert parameter == "model"
    assert name in problem


@pytest.mark.parametrize(
    ("spec", "text_mode", "says"),
    [
        (SwePruner(), False, "url=http://HOST:PORT"),
        (SwePruner(url="localhost:8000"), False, "no http address"),
        (SwePruner(url="http://a:1"), True, "no tool calls"),
    ],
)
def test_what_swe_pruner_lacks_is_named(spec: SwePruner, text_mode: bool, says: str) -> None:
    ((_, problem),) = missing_parts(spec, text_mode=text_mode)
    assert says in problem


def test_a_worker_that_cannot_have_a_pruner_says_which_arm_and_what_to_do() -> None:
    with pytest.raises(NodeError, match=r"arms\.v1\.policy\.url: .*arms\.v1\.policy\.url=http"):
        PrunerPool([ArmSpec(name="v1", policy=SwePruner())])
    with pytest.raises(NodeError, match="arm v1 cannot be used: no SWE-Pruner server answers"):
        PrunerPool([ArmSpec(name="v1", policy=SwePruner(url="http://127.0.0.1:1"))])


def test_no_run_begins_while_the_server_of_its_pruner_is_gone() -> None:
    other = ArmSpec(name="full_history", policy=FullHistory())
    with PruneServer() as server:
        arm = ArmSpec(name="v1", policy=SwePruner(url=server.url))
        pool = PrunerPool([arm, other])
        assert pool.of(arm) is not None
    with pytest.raises(NodeError, match=r"arm v1 cannot be used: no .* answers .*start it again"):
        pool.of(arm)
    assert pool.of(other) is None


def test_an_arm_gets_its_pruner_its_budget_met_or_not_and_others_get_none() -> None:
    with PruneServer() as server:
        arm = ArmSpec(name="v1", policy=SwePruner(url=server.url))
        fitted = ArmSpec(name="v1", policy=SwePruner(url=server.url, threshold=0.9))
        pool = PrunerPool([arm, ArmSpec(name="full_history", policy=FullHistory())])
        assert pool.of(arm) is pool.of(arm)
        assert pool.of(fitted) is pool.of(fitted)
        assert pool.of(fitted) is not pool.of(arm)
        assert pool.of(ArmSpec(name="full_history", policy=FullHistory())) is None


def test_a_decision_for_another_number_of_lines_is_an_error() -> None:
    def one_line(_: PruneRequest) -> list[bool]:
        return [True]

    with pytest.raises(PrunerError, match="1 decisions for 2 lines"):
        Guarded(SimpleNamespace(prune=one_line)).prune(request("a\nb\n"))


def test_launching_and_working_import_no_pytorch_before_an_arm_needs_it() -> None:
    """Where torch is not installed this holds anyway; where it is, it costs seconds and memory."""
    code = (
        "import sys, pipeline.launch, pipeline.worker.rollout_job\n"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


KINDS_OF_PRUNERS = sorted(k for k, arm in KINDS.items() if issubclass(arm, LinePruning))


@pytest.mark.parametrize("kind", KINDS_OF_PRUNERS)
def test_every_line_pruner_is_loaded_from_the_module_of_its_kind(kind: str) -> None:
    """Read and not imported: most of these modules need PyTorch."""
    tree = ast.parse((Path(pruners.__path__[0]) / f"{kind}.py").read_text())
    loaders = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "load"]
    assert [[a.arg for a in loader.args.args] for loader in loaders] == [["spec", "models"]]
