"""The name of every file in a results folder, and nothing about what is inside.

One place knows the names, so that a worker on a node, a command on the login node and a reader on a
laptop cannot disagree about them. The folder is described in docs/records.md.
"""

import re
from dataclasses import dataclass
from pathlib import Path

TABLE_FILE = "part.parquet"
"""The file of a table that is kept as one file and replaced whole."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


def file_name(text: str) -> str:
    """Return `text` as a file name: letters, digits and `._+-`; anything else becomes `-`."""
    return _UNSAFE.sub("-", text).strip("-.") or "unnamed"


def grade_log_member(run_id: str, kind: str, attempt: int) -> str:
    """Return the name of one grading's test log in its worker's archive in `logs`."""
    return f"{run_id}/{kind}-{attempt}.test_output.txt.gz"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths in the results folder `root`. Asking for a path creates nothing."""

    root: Path

    @property
    def lock(self) -> Path:
        """The resolved sweep, as it was launched (YAML)."""
        return self.root / "sweep.lock.yaml"

    @property
    def plan(self) -> Path:
        """One row a run, in execution order."""
        return self.root / "plan.parquet"

    @property
    def dataset(self) -> Path:
        """The benchmark rows that the plan needs, in SWE-bench's columns."""
        return self.root / "instances.parquet"

    @property
    def gold(self) -> Path:
        """How the gold patches fared on this site (JSON); written by `grade --gold`."""
        return self.root / "gold.json"

    @property
    def drain_request(self) -> Path:
        """While this exists, workers start no new block."""
        return self.root / "drain"

    @property
    def ended_arms(self) -> Path:
        """One small JSON file an arm of which no more runs are begun."""
        return self.root / "ended_arms"

    # --- claims ---
    @property
    def claims(self) -> Path:
        """One small file a claimed block."""
        return self.root / "claims"

    def claim(self, block_id: str) -> Path:
        """The claim of a block that is being worked on."""
        return self.claims / f"{file_name(block_id)}.claim"

    def claim_done(self, block_id: str) -> Path:
        """The claim of a block whose runs are all published."""
        return self.claims / f"{file_name(block_id)}.done"

    @property
    def compaction_claim(self) -> Path:
        """Held by the one command that compacts."""
        return self.claims / "compaction.claim"

    @property
    def submission_claim(self) -> Path:
        """Held by the one launch that submits."""
        return self.claims / "submission.claim"

    # --- what workers write ---
    @property
    def submissions(self) -> Path:
        """Job ids of every launch."""
        return self.root / "submissions"

    @property
    def journals(self) -> Path:
        """One append-only file a worker attempt."""
        return self.root / "journals"

    def journal(self, name: str) -> Path:
        """The journal of the worker attempt `name`."""
        return self.journals / f"{file_name(name)}.journal"

    def journal_paths(self) -> list[Path]:
        """Every journal that exists now, by name."""
        return sorted(self.journals.glob("*.journal")) if self.journals.is_dir() else []

    @property
    def spool(self) -> Path:
        """What proxies have of runs that are under way: one journal of parts a proxy."""
        return self.root / "spool"

    @property
    def status(self) -> Path:
        """One small JSON file a live worker."""
        return self.root / "status"

    def status_of(self, worker: str) -> Path:
        """The status file of `worker`."""
        return self.status / f"{file_name(worker)}.json"

    @property
    def usage(self) -> Path:
        """One small JSON file a worker attempt that had GPUs: for how long."""
        return self.root / "usage"

    def usage_file(self, worker: str) -> Path:
        """What the worker attempt `worker` has used."""
        return self.usage / f"{file_name(worker)}.json"

    @property
    def cut_short(self) -> Path:
        """One small JSON file a worker attempt whose job ended before its runs did."""
        return self.root / "cut_short"

    def cut_short_file(self, worker: str) -> Path:
        """The runs that the worker attempt `worker` gave up at its job's end."""
        return self.cut_short / f"{file_name(worker)}.json"

    @property
    def logs(self) -> Path:
        """Slurm, server and grading logs."""
        return self.root / "logs"

    def log(self, name: str) -> Path:
        """The log called `name`."""
        return self.logs / f"{file_name(name)}.log"

    # --- what commands write ---
    @property
    def tables(self) -> Path:
        """The Parquet tables."""
        return self.root / "tables"

    def table(self, name: str) -> Path:
        """The folder of one table; all its `.parquet` files together are the table."""
        return self.tables / name

    def table_file(self, name: str) -> Path:
        """The file of a table that is one file (`runs`, `grades`, ...)."""
        return self.table(name) / TABLE_FILE

    def table_part(self, name: str, journal: str) -> Path:
        """The rows that one journal brought to a table (`calls`, `messages`, ...)."""
        return self.table(name) / f"{journal}.parquet"

    @property
    def exports(self) -> Path:
        """What `export` writes, unless told otherwise."""
        return self.root / "export"

    @property
    def report(self) -> Path:
        """What `analyze` writes."""
        return self.root / "report"

    @property
    def report_page(self) -> Path:
        """The report, one self-contained HTML file."""
        return self.report / "report.html"
