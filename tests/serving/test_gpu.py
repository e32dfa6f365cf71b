"""GPUs through NVIDIA's library: one of its shape in its place, and the real one where it is."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.host.environment import environment
from pipeline.serving.finding import ServerUnfitError
from pipeline.serving.gpu import BINDING, GpuSample, gpu_sample, missing_gpus, pids_on_gpus
from pipeline.serving.server import VllmServer
from pipeline.spec.model import ModelSpec

NAMES = ("GPU-a", "GPU-b", "GPU-c")


class Library(ModuleType):
    """Three devices: device n is busy (n + 1) x 10 percent, holds n GB for process 100 + n."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__(BINDING)
        self.n_open = 0
        self.broken = False

    def nvmlInit(self) -> None:  # noqa: N802
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")
        self.n_open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.n_open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(NAMES)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:  # noqa: N802
        if name not in NAMES:
            raise self.NVMLError("Not Found")
        return NAMES.index(name)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=(handle + 1) * 10)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=handle * 10**9)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=100 + handle)]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    fake = Library()
    monkeypatch.setitem(sys.modules, BINDING, fake)
    return fake


@pytest.mark.parametrize(
    ("visible", "sample", "pids"),
    [
        (None, GpuSample(0.2, 3e9), {100, 101, 102}),
        ("0,2", GpuSample(0.2, 2e9), {100, 102}),
        ("GPU-b", GpuSample(0.2, 1e9), {101}),
        ("", None, set()),
        ("7", None, set()),
        ("GPU-gone", None, set()),
    ],
)
def test_only_the_jobs_gpus_count(
    library: Library, visible: str | None, sample: GpuSample | None, pids: set[int]
):
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_sample(env) == (None if sample is None else pytest.approx(sample))
    assert pids_on_gpus(env) == pids
    assert library.n_open == 0


def test_without_a_driver_or_the_library_nothing_is_seen(
    library: Library, monkeypatch: pytest.MonkeyPatch
):
    library.broken = True
    assert gpu_sample({}) is None
    assert pids_on_gpus({}) == frozenset()
    monkeypatch.setitem(sys.modules, BINDING, None)
    assert gpu_sample({}) is None


@pytest.mark.gpu
def test_a_real_gpu_is_seen():
    pytest.importorskip(BINDING, reason="pip install nvidia-ml-py")
    sample = gpu_sample(environment())
    assert sample is not None
    assert 0.0 <= sample.util <= 1.0
    assert sample.mem_bytes > 0


# --- before a server is started ------------------------------------------------------------------
@pytest.mark.usefixtures("library")
def test_a_job_with_enough_gpus_lacks_nothing() -> None:
    assert missing_gpus({}, 3) is None
    assert missing_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, 2) is None
    assert missing_gpus({"CUDA_VISIBLE_DEVICES": ""}, 0) is None


@pytest.mark.usefixtures("library")
def test_a_job_with_too_few_gpus_is_told_what_to_ask_for() -> None:
    said = missing_gpus({"CUDA_VISIBLE_DEVICES": "0"}, 2)
    assert said is not None
    assert "1 of the 2 GPUs" in said
    assert "cluster.rollout.gres=gpu:2" in said


@pytest.mark.parametrize("named", ["", "-1", "NoDevFiles"])
@pytest.mark.usefixtures("library")
def test_a_job_without_a_gpu_is_told_so(named: str) -> None:
    said = missing_gpus({"CUDA_VISIBLE_DEVICES": named}, 1)
    assert said is not None
    assert "this job has no GPU" in said


def test_no_server_is_started_where_its_gpus_are_not(tmp_path: Path) -> None:
    model = ModelSpec(name="m", kind="vllm", repo="r", n_gpus=1)
    env = environment() | {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(ServerUnfitError, match="no GPU"):
        VllmServer(model, log=tmp_path / "server.log", env=env, node="here")
    assert not (tmp_path / "server.log").exists()
