"""What a cluster's Slurm says of itself: limits, partitions, accounts, what it would refuse.

Asks, and believes the answer; what does not answer is None, never a guess. States of jobs are
`pipeline.host.slurm`; what follows from the limits is `pipeline.planning.slurm_site`.
"""

import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.host.slurm_command import slurm_answer, slurm_said
from pipeline.host.slurm_job import duration_s


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmLimits:
    """How much may be submitted, as far as the site says."""

    version: str | None = None
    max_array_size: int | None = None
    """An array has at most so many tasks; the largest index is one less."""
    kill_wait_s: int | None = None
    """From SIGTERM to SIGKILL."""
    accounting: bool = False
    """A database keeps associations and the history that `sacct` shows."""
    enforced: str | None = None
    """Which of the database's limits are enforced; None: none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A partition's nodes of one kind, as `sinfo` lists them."""

    name: str
    is_default: bool
    available: bool
    time_limit_min: int | None
    """None: unlimited."""
    n_nodes: int
    gres: str
    cpus: int
    mem_mb: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """An account that this user may charge."""

    account: str
    partition: str
    qos: str
    max_submit: int | None


def has_slurm() -> bool:
    """Return whether Slurm's commands are here."""
    return shutil.which("sbatch") is not None and shutil.which("squeue") is not None


def slurm_limits() -> SlurmLimits | None:
    """Return the controller's settings; None when it does not answer."""
    text = slurm_answer(["scontrol", "show", "config"])
    if text is None:
        return None
    pairs = (line.partition("=") for line in text.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    enforced = values.get("AccountingStorageEnforce", "none")
    return SlurmLimits(
        version=values.get("SLURM_VERSION"),
        max_array_size=_number(values.get("MaxArraySize", "")),
        kill_wait_s=_number(values.get("KillWait", "")),
        accounting=values.get("AccountingStorageType", "").endswith("slurmdbd"),
        enforced=None if enforced == "none" else enforced,
    )


def partitions() -> list[Partition] | None:
    """Return what `sinfo` lists, a line for every kind of node; None when it does not answer."""
    text = slurm_answer(["sinfo", "--noheader", "--format=%P|%a|%l|%D|%G|%c|%m"])
    if text is None:
        return None
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == 6)
    return [
        Partition(
            name=name.removesuffix("*"),
            is_default=name.endswith("*"),
            available=available == "up",
            time_limit_min=_minutes(limit),
            n_nodes=_number(nodes) or 0,
            gres="" if gres == "(null)" else gres,
            cpus=_number(cpus) or 0,
            mem_mb=_number(memory) or 0,
        )
        for name, available, limit, nodes, gres, cpus, memory in rows
    ]


def associations() -> list[Association] | None:
    """Return the accounts of this user; None without an accounting database."""
    if shutil.which("sacctmgr") is None:
        return None
    user = pwd.getpwuid(os.getuid()).pw_name
    columns = "format=account,partition,qos,maxsubmit"
    text = slurm_answer(["sacctmgr", "-nP", "show", "assoc", f"user={user}", columns])
    if text is None:
        return None
    rows = (line.split("|") for line in text.splitlines() if line.count("|") == 3)
    return [
        Association(account=account, partition=partition, qos=qos, max_submit=_number(limit))
        for account, partition, qos, limit in rows
    ]


def n_queued() -> int | None:
    """Return how many jobs this user has in the queue, array tasks counted one by one."""
    text = slurm_answer(
        ["squeue", "--noheader", "--array", "--user", str(os.getuid()), "--format=%i"]
    )
    return None if text is None else len(text.split())


def refusal(script: str, *, keep: Collection[str] = ()) -> str | None:
    """Return why sbatch would refuse `script`, None if it would take it. Nothing is submitted.

    `keep` names the variables of this process that sbatch may take for options.
    """
    with tempfile.TemporaryDirectory(prefix="planprune-sbatch-") as folder:
        path = Path(folder) / "job.sh"
        path.write_text(script, encoding="utf-8")
        done = slurm_said(["sbatch", "--test-only", str(path)], keep=keep)
    if done.returncode == 0:
        return None
    said = re.sub(r"^(sbatch: error:|sbatch:|allocation failure:)\s*", "", done.text.strip())
    return said or f"sbatch --test-only ended with status {done.returncode}"


def gpus_of(gres: str | None) -> int:
    """Return how many GPUs a request such as `gpu:a100:2` is for; what is no GPU counts 0."""
    return sum(_gpus(entry) for entry in (gres or "").split(","))


def _gpus(entry: str) -> int:
    words = re.sub(r"\(.*\)", "", entry.strip()).removeprefix("gres/").split(":")
    if words[0] != "gpu":
        return 0
    return int(words[-1]) if words[-1].isdecimal() else 1


def _minutes(limit: str) -> int | None:
    seconds = duration_s(limit.strip())
    return None if seconds is None else int(seconds // 60)


def _number(text: str) -> int | None:
    found = re.match(r"\d+", text.strip())
    return int(found[0]) if found else None


def tightest(limits: Iterable[int | None]) -> int | None:
    """Return the smallest of the limits that are known, None where none is."""
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None
