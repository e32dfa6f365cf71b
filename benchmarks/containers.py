"""How fast sandboxes start, run commands and stop, beside their peers, on this machine.

    python benchmarks/containers.py IMAGE.sif SCRATCH_FOLDER

Prints one JSON object: milliseconds for starts, stops and commands, and rates for 16 at once.
Peers that are not installed are left out. Ratios hold, figures do not: run it on a quiet machine.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline.sandbox.apptainer import ApptainerSandboxes
from pipeline.sandbox.images import sha256_of
from pipeline.sandbox.local import LocalSandboxes

AT_ONCE = 16
ROW = {"instance_id": "benchmark"}


class OneImage:
    """An image store with one image for every row."""

    def __init__(self, sif: Path) -> None:
        self._sif, self._digest = sif, f"sha256:{sha256_of(sif)}"

    def sif_for(self, _: object) -> Path:
        return self._sif

    def sif_digest(self, _: object) -> str:
        return self._digest

    def digest(self, _: object) -> str | None:
        return None


def milliseconds(action: Callable[[], object], times: int) -> float:
    """Return the median time of `action`."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        action()
        spent.append(time.perf_counter() - started)
    return round(1000 * statistics.median(spent), 2)


def rate(action: Callable[[int], object], each: int) -> float:
    """Return how often a second `action` ran, `each` times in every one of 16 threads."""

    def repeat(number: int) -> None:
        for _ in range(each):
            action(number)

    started = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(repeat, range(AT_ONCE)))
    return round(AT_ONCE * each / (time.perf_counter() - started), 1)


def ours(factory: Any) -> dict[str, float]:
    def start() -> Any:
        return factory.start(ROW, purpose="rollout")

    start().stop()  # extracts the image, finds the layout
    boxes = []
    figures = {"start_ms": milliseconds(lambda: boxes.append(start()), 8)}
    figures["command_ms"] = milliseconds(lambda: boxes[0].execute("true", timeout_s=60), 300)
    boxes += [start() for _ in range(AT_ONCE - len(boxes))]
    figures["commands_per_s"] = rate(lambda n: boxes[n].execute("true", timeout_s=60), 60)
    figures["stop_ms"] = milliseconds(lambda: boxes.pop().stop(), AT_ONCE)
    figures["sandboxes_per_min"] = round(60 * rate(lambda _: start().stop(), 2))
    return figures


def plain(sif: Path) -> dict[str, float]:
    def run(_: int = 0) -> None:
        subprocess.run(["apptainer", "exec", str(sif), "true"], capture_output=True, check=True)

    return {"command_ms": milliseconds(run, 5), "commands_per_s": rate(run, 3)}


async def hpc(sif: Path, scratch: Path) -> dict[str, float]:
    from hpc_sandbox import SandboxSpec, SingularityProvider

    provider = SingularityProvider(
        binary="apptainer", scratch_root=scratch, rootfs_layout="fuse-overlay"
    )
    spec = SandboxSpec(image=str(sif), workdir="/")
    await (await provider.start(spec)).stop()
    started = time.perf_counter()
    boxes = [await provider.start(spec)]
    figures = {"start_ms": round(1000 * (time.perf_counter() - started))}
    spent = []
    for _ in range(20):
        began = time.perf_counter()
        await boxes[0].exec("true", timeout_s=60)
        spent.append(time.perf_counter() - began)
    figures["command_ms"] = round(1000 * statistics.median(spent), 2)
    boxes += await asyncio.gather(*(provider.start(spec) for _ in range(AT_ONCE - 1)))

    async def several(box: Any) -> None:
        for _ in range(5):
            await box.exec("true", timeout_s=60)

    began = time.perf_counter()
    await asyncio.gather(*map(several, boxes))
    figures["commands_per_s"] = round(AT_ONCE * 5 / (time.perf_counter() - began), 1)
    began = time.perf_counter()
    await boxes[0].stop()
    figures["stop_ms"] = round(1000 * (time.perf_counter() - began))
    await asyncio.gather(*(box.stop() for box in boxes[1:]), return_exceptions=True)
    await provider.wait_for_deletions()
    return figures


def mini(sif: Path) -> dict[str, float]:
    import os

    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    from minisweagent.environments.singularity import SingularityEnvironment

    def make() -> Any:
        return SingularityEnvironment(image=str(sif), executable="apptainer", cwd="/")

    boxes: list[Any] = []
    figures = {"start_ms": milliseconds(lambda: boxes.append(make()), 2)}
    figures["command_ms"] = milliseconds(lambda: boxes[0].execute({"command": "true"}), 5)
    figures["stop_ms"] = milliseconds(lambda: boxes.pop().cleanup(), 2)
    figures["sandboxes_per_min"] = round(60 * rate(lambda _: make().cleanup(), 1))
    return figures


def main(sif: Path, scratch: Path) -> None:
    local = LocalSandboxes(scratch / "local", lambda *_: None)
    containers = ApptainerSandboxes(scratch / "boxes", OneImage(sif), keep_free_bytes=1 << 30)
    figures: dict[str, Any] = {"local": ours(local), "apptainer": ours(containers)}
    figures["apptainer exec"] = plain(sif)
    for name, measure in (
        ("hpc-sandbox", lambda: asyncio.run(hpc(sif, scratch / "hpc"))),
        ("mini-swe-agent", lambda: mini(sif)),
    ):
        try:
            figures[name] = measure()
        except ImportError as error:
            figures[name] = f"not installed: {error}"
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
