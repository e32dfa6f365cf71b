"""The GPUs of this job, as NVIDIA's management library sees them; nothing where there is none.

Owns utilisation, memory and the processes on the GPUs that `CUDA_VISIBLE_DEVICES` names. The
library's Python binding (`nvidia-ml-py`) is optional: without it, or without a driver, there are no
GPUs here.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

BINDING = "pynvml"
_DEVICE_FILES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))

Answer = TypeVar("Answer")


class GpuSample(NamedTuple):
    """One look at the job's GPUs."""

    util: float
    """Share of the last interval in which a kernel ran, mean over the GPUs."""
    mem_bytes: float
    """In use, sum over the GPUs, by whoever."""


def gpu_sample(env: Mapping[str, str]) -> GpuSample | None:
    """Return utilisation and memory of the job's GPUs, None where there is none to see."""
    return _query(env, _sample)


def pids_on_gpus(env: Mapping[str, str]) -> frozenset[int]:
    """Return the processes that hold memory on the job's GPUs, as far as the driver tells."""
    return _query(env, _pids) or frozenset()


def missing_gpus(env: Mapping[str, str], needed: int) -> str | None:
    """Return what is wrong where this job has fewer GPUs than `needed`; None where it has them.

    Devices that only the driver could name count as there: a library that is missing or does not
    answer proves nothing, unless no device file of NVIDIA's or AMD's exists either.
    """
    if needed == 0:
        return None
    seen = _query(env, lambda _, handles: len(handles))
    if seen is None:
        hidden = env.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1", "NoDevFiles")
        if not hidden and any(path.exists() for path in _DEVICE_FILES):
            return None
        seen = 0
    if seen >= needed:
        return None
    has = "no GPU" if seen == 0 else f"{seen} of the {needed} GPUs that the model needs"
    return (
        f"this job has {has}; ask for them with cluster.rollout.gres=gpu:{needed} (and a partition "
        "that has them), or choose a model with n_gpus: 0"
    )


def _sample(nvml: Any, handles: Sequence[Any]) -> GpuSample:
    utils = [nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles]
    used = [nvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles]
    return GpuSample(sum(utils) / len(utils), float(sum(used)))


def _pids(nvml: Any, handles: Sequence[Any]) -> frozenset[int]:
    return frozenset(
        int(process.pid)
        for handle in handles
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    )


def _query(env: Mapping[str, str], ask: Callable[[Any, Sequence[Any]], Answer]) -> Answer | None:
    """Return what `ask` finds out about the job's GPUs, None where it cannot."""
    try:
        nvml = importlib.import_module(BINDING)
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        handles = _handles(nvml, env)
        return ask(nvml, handles) if handles else None
    except nvml.NVMLError:
        # A counter that the device does not have, or a device that fell off: unknown.
        return None
    finally:
        nvml.nvmlShutdown()


def _handles(nvml: Any, env: Mapping[str, str]) -> list[Any]:
    """Return the devices in `CUDA_VISIBLE_DEVICES`, all where it is not set."""
    count = nvml.nvmlDeviceGetCount()
    named = env.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    handles = []
    for name in re.findall(r"[\w-]+", named):
        if not name.isdigit():
            handles.append(nvml.nvmlDeviceGetHandleByUUID(name))
        elif int(name) < count:
            # Inside a job the numbers count what the job was given; NVML then counts the same.
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
    return handles
