"""Claims per second on one folder, against a bare exclusive create, in one run.

    python benchmarks/claims.py [FOLDER] [--processes N] [--blocks N]

FOLDER (default: a temporary one) should be on the file system that a sweep would use. All
processes go for the same blocks in the same order, which is the worst case: a worker of a sweep
lists the folder first. The bare create (O_EXCL, no content, no sync) is the floor; ours writes the
owner, syncs, and can be read by whoever lost.
"""

import argparse
import multiprocessing
import os
import shutil
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from pipeline.host.claim_file import this_owner
from pipeline.records.layout import Layout
from pipeline.worker.claims import ClaimBoard


def claim_ours(root: Path, names: list[str]) -> int:
    board = ClaimBoard(Layout(root), this_owner("bench"), stale_s=60)
    return sum(board.try_claim(name) is not None for name in names)


def claim_listed(root: Path, names: list[str]) -> int:
    """As a worker does it: look at the listing before trying."""
    board = ClaimBoard(Layout(root), this_owner("bench"), stale_s=60)
    won = 0
    for name in names:
        if name not in board.claimed():
            won += board.try_claim(name) is not None
    return won


def claim_bare(root: Path, names: list[str]) -> int:
    won = 0
    for name in names:
        try:
            os.close(os.open(root / "claims" / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        won += 1
    return won


WAYS = {"bare O_EXCL": claim_bare, "ours, blind": claim_ours, "ours, listed": claim_listed}


def one(way: str, root: Path, names: list[str], barrier: Barrier, results) -> None:  # type: ignore[no-untyped-def]
    barrier.wait()
    results.put(WAYS[way](root, names))


def measured(way: str, folder: Path, processes: int, names: list[str]) -> float:
    """Return claims won per second, all processes together."""
    root = folder / way.replace(" ", "-").replace(",", "")
    (root / "claims").mkdir(parents=True)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=one, args=(way, root, names, barrier, results))
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    started = time.perf_counter()
    won = sum(results.get() for _ in workers)
    took = time.perf_counter() - started
    for worker in workers:
        worker.join()
    assert won == len(names), f"{way}: {won} claims won of {len(names)} blocks"
    return won / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=1000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="claims-", dir=options.folder))
    names = [f"block-{n:05d}" for n in range(options.blocks)]
    try:
        rate = {way: measured(way, folder, options.processes, names) for way in WAYS}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for way, per_s in rate.items():
        ratio = per_s / rate["bare O_EXCL"]
        print(f"{way:14} {per_s:8.0f} claims/s   {ratio:5.2f} of bare")
    print(f"{options.processes} processes, {options.blocks} blocks; every block won exactly once")


if __name__ == "__main__":
    main()
