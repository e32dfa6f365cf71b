"""GPUs through NVIDIA's library: one of its shape in its place, and the real one where it is."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from pipeline.host.environment import environment
from pipeline.serving.gpu import BINDING, GpuSample, gpu_sample, pids_on_gpus

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
