"""A sweep made ready: its rows read, its lock and its plan built, nothing written yet."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.benchmarks.registry import benchmark_rows
from pipeline.benchmarks.rows import image_reference, row_sha256, select_rows, stratified
from pipeline.fields.identity import digest_of, identity_of, methods_of
from pipeline.planning.grid import planned_runs
from pipeline.planning.provenance import CHECKOUT, git_state, package_versions, site_facts
from pipeline.records.lock import Lock, StagedModel
from pipeline.records.plan import PlannedRun
from pipeline.sandbox.images import ImageStore
from pipeline.serving.command import located
from pipeline.serving.staged import ModelFilesError, image_sha256, read_manifest
from pipeline.spec.sweep import SweepSpec


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything a launch writes before its first job."""

    lock: Lock
    rows: Sequence[Mapping[str, Any]]
    runs: Sequence[PlannedRun]


def prepare(spec: SweepSpec, *, now: datetime | None = None) -> Prepared:
    """Return the lock, rows and runs of `spec`.

    Raises:
        DatasetError, ValueError: rows that are missing, malformed or not in the dataset.
        SandboxError: the record of a staged image is broken.
    """
    rows = rows_of(spec)
    rows_sha256 = {str(row["instance_id"]): row_sha256(row) for row in rows}
    commit, dirty = git_state()
    lock = Lock(
        spec=spec,
        created_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        commit=commit,
        dirty_sha256=dirty,
        versions=package_versions(),
        dataset_sha256=hashlib.sha256("".join(sorted(rows_sha256.values())).encode()).hexdigest(),
        rows_sha256=rows_sha256,
        image_digests=_image_digests(spec, rows),
        staged_models=_staged_models(spec),
        site=site_facts(spec.cluster.name),
        methods=methods_of(spec),
        analysis_sha256=digest_of(identity_of(spec.analysis), length=64),
    )
    return Prepared(lock=lock, rows=rows, runs=planned_runs(spec, rows, rows_sha256))


def _image_digests(spec: SweepSpec, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the digests of what is staged; what is missing is for preflight to say."""
    if spec.sandbox != "apptainer" or spec.cluster.images is None:
        return {}
    return ImageStore(Path(spec.cluster.images), image_reference).digests(rows)


def _staged_models(spec: SweepSpec) -> dict[str, StagedModel]:
    """Return what was staged for the models; what is wrong with it is for preflight to say."""
    staged = {}
    for name, model in spec.models.items():
        serve = located(model, CHECKOUT).serve
        if model.kind != "vllm" or serve.model_path is None:
            continue
        with contextlib.suppress(ModelFilesError):
            manifest = read_manifest(Path(serve.model_path))
            if manifest is not None and manifest.is_whole:
                staged[name] = StagedModel(
                    repo=manifest.repo,
                    revision=manifest.revision,
                    files_sha256=manifest.digest,
                    image_sha256=image_sha256(Path(serve.image)) if serve.image else None,
                )
    return staged


def rows_of(spec: SweepSpec) -> Sequence[Mapping[str, Any]]:
    """Return the rows of the sweep's instances.

    Raises:
        DatasetError, ValueError: rows that are missing, malformed or not in the dataset.
    """
    return sweep_rows(spec, benchmark_rows(spec.benchmark))


def sweep_rows(spec: SweepSpec, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the rows that the sweep's instance filter picks from a benchmark's."""
    chosen = spec.instances
    picked = select_rows(rows, instance_ids=chosen.ids) if chosen.ids else rows
    if chosen.sample is not None:
        picked = stratified(picked, chosen.sample, chosen.sample_seed)
    return picked
