"""What is kept of one grading and of one look at a model server, and the rows they become."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pipeline.fields.kept import Kept, kept_values
from pipeline.records.failure import GradeClass

PatchKind = Literal["submitted", "limit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeRecord:
    """One grading of one patch of a run. Counts are None where no test ran."""

    run_id: Annotated[str, Kept("The run")]
    instance_id: Annotated[str, Kept("The benchmark task")]
    attempt: Annotated[int, Kept("From 1")]
    grade_class: Annotated[GradeClass, Kept("What grading came to (grade classes below)")]
    resolved: Annotated[
        bool | None, Kept("The official verdict; empty where grading itself failed")
    ]
    score: Annotated[
        float | None,
        Kept("How far it is solved, 0 to 1; empty where it is solved or not, or nobody knows"),
    ] = None
    score_parts: Annotated[str | None, Kept("What the score is made of, by name", json=True)] = None
    patch_exists: Annotated[bool, Kept("There was something to grade")]
    patch_applied: Annotated[bool | None, Kept("It applied and left a gradable log")] = None
    f2p_passed: Annotated[int | None, Kept("FAIL_TO_PASS tests that pass", "tests")] = None
    f2p_total: Annotated[int | None, Kept("FAIL_TO_PASS tests", "tests")] = None
    p2p_passed: Annotated[int | None, Kept("PASS_TO_PASS tests that pass", "tests")] = None
    p2p_total: Annotated[int | None, Kept("PASS_TO_PASS tests", "tests")] = None
    harness_version: Annotated[
        str, Kept("What names the rules of grading, tests of a row behind a colon")
    ]
    image_digest: Annotated[str | None, Kept("Digest of the image graded in")] = None
    patch_sha256: Annotated[
        str | None, Kept("Of the patch graded; stale where it is not the run's")
    ]
    patch_kind: PatchKind = "submitted"
    seconds: Annotated[float | None, Kept("Time the grading took", "s")] = None
    report: Annotated[str | None, Kept("The official per-instance report", json=True)] = None
    failure: Annotated[str | None, Kept("What went wrong, for people")] = None
    timeouts: Annotated[int, Kept("Tries that ran into the time limit")] = 0
    eval_environment: Annotated[
        str | None, Kept("How its build tools came: official, wheels, installed")
    ] = None
    apply_command: Annotated[str | None, Kept("The official command that applied the patch")] = None
    test_exit_code: Annotated[
        int | None, Kept("Of the test command; empty: the log does not get that far")
    ] = None
    n_statuses: Annotated[
        int | None, Kept("With a status in the log; empty: the log is not complete", "tests")
    ] = None
    test_settings: tuple[str, ...] = ()
    """Files of the patch that change how tests are run."""
    finished_at: Annotated[float, Kept("End", "unix s")]
    worker: Annotated[str, Kept("The worker attempt that graded")]
    node: Annotated[str, Kept("Host it ran on")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSample:
    """One sample of a model server's metrics. None: the server does not report it."""

    worker: Annotated[str, Kept("The worker attempt whose server this is")]
    sampled_at: Annotated[float, Kept("When", "unix s")]
    running: Annotated[int | None, Kept("In the batch", "requests")] = None
    waiting: Annotated[int | None, Kept("In the queue", "requests")] = None
    kv_usage: Annotated[float | None, Kept("Of the KV cache in use", "fraction")] = None
    prompt_tokens: Annotated[int | None, Kept("Counter", "tokens")] = None
    generation_tokens: Annotated[int | None, Kept("Counter", "tokens")] = None
    prefix_queries: Annotated[
        int | None, Kept("Counter: looked up in the prefix cache", "tokens")
    ] = None
    prefix_hits: Annotated[int | None, Kept("Counter: found there", "tokens")] = None
    preemptions: Annotated[int | None, Kept("Counter", "requests")] = None
    gpu_util: Annotated[float | None, Kept("Mean over the server's GPUs", "fraction")] = None
    gpu_mem: Annotated[float | None, Kept("Sum over the server's GPUs", "bytes")] = None


def grade_row(
    record: GradeRecord, *, journal: str = "", offset: int | None = None
) -> dict[str, Any]:
    """Return the row of `grades` or, by `patch_kind`, of `limit_grades`."""
    return {
        **kept_values(record),
        "grade_class": record.grade_class.value,
        "test_settings": ", ".join(record.test_settings) or None,
        "journal": journal,
        "journal_offset": offset,
    }


def server_row(sample: ServerSample) -> dict[str, Any]:
    """Return the row of `server`."""
    return kept_values(sample)
