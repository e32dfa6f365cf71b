"""What is kept of one grading and of one look at a model server, and the rows they become."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from pipeline.records.failure import GradeClass

PatchKind = Literal["submitted", "limit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeRecord:
    """One grading of one patch of a run. Counts are None where no test ran."""

    run_id: str
    instance_id: str
    attempt: int
    grade_class: GradeClass
    resolved: bool | None
    """None where grading itself failed."""
    patch_exists: bool
    patch_applied: bool | None = None
    f2p_passed: int | None = None
    f2p_total: int | None = None
    p2p_passed: int | None = None
    p2p_total: int | None = None
    harness_version: str
    image_digest: str | None = None
    patch_sha256: str | None
    """`run_record.text_sha256` of the patch graded; None without a patch."""
    patch_kind: PatchKind = "submitted"
    seconds: float | None = None
    report: str | None = None
    """The official per-instance report, JSON."""
    failure: str | None = None
    timeouts: int = 0
    eval_environment: str | None = None
    """What the evaluation script ran with, by name; None: it did not run."""
    apply_command: str | None = None
    """The official command that applied the patch."""
    test_exit_code: int | None = None
    n_statuses: int | None = None
    """Tests whose status the log has; None: the log is not complete."""
    test_settings: tuple[str, ...] = ()
    """Files of the patch that change how tests are run."""
    finished_at: float
    worker: str
    node: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSample:
    """One sample of a model server's metrics. None: the server does not report it."""

    worker: str
    sampled_at: float
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    preemptions: int | None = None
    gpu_util: float | None = None
    gpu_mem: float | None = None


def grade_row(
    record: GradeRecord, *, journal: str = "", offset: int | None = None
) -> dict[str, Any]:
    """Return the row of `grades` or, by `patch_kind`, of `limit_grades`."""
    row = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "patch_kind"}
    return {
        **row,
        "grade_class": record.grade_class.value,
        "test_settings": ", ".join(record.test_settings) or None,
        "journal": journal,
        "journal_offset": offset,
    }


def server_row(sample: ServerSample) -> dict[str, Any]:
    """Return the row of `server`."""
    return {f.name: getattr(sample, f.name) for f in fields(sample)}
