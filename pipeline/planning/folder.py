"""The results folder before a launch: new, the same sweep again, or an extension of it.

What was locked stays. A launch that would change or remove a science field is refused and told
which; one that adds cells or instances is an extension, appended to lock and plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

from pipeline.fields.identity import science_of
from pipeline.host.files import create_exclusive, replace_bytes
from pipeline.planning.prepare import Prepared
from pipeline.records.layout import Layout
from pipeline.records.lock import Extension, Lock, lock_text, read_lock, read_rows, rows_bytes
from pipeline.records.plan import PlannedRun, plan_bytes, read_plan
from pipeline.records.states import run_states

Opened = Literal["new", "relocked", "resumed", "extended"]
"""`relocked`: locked before with other settings, and nothing was submitted since."""


class FolderError(Exception):
    """The folder belongs to another sweep, or to something else entirely."""


def check_folder(layout: Layout, sweep: Prepared) -> tuple[Opened, Prepared]:
    """Return how the folder would be opened and what would then be in it; writes nothing.

    Raises:
        FolderError: another sweep's folder, or a science field changed or removed.
    """
    if not layout.lock.exists():
        if layout.root.exists() and not layout.root.is_dir():
            raise FolderError(f"{layout.root} is not a folder; choose another with results=DIR")
        ours = layout.plan.exists() or layout.submissions.is_dir()
        if layout.root.is_dir() and any(layout.root.iterdir()) and not ours:
            raise FolderError(
                f"{layout.root} is not empty and holds no sweep; "
                "choose another folder with results=DIR"
            )
        return "new", sweep
    locked = read_lock(layout.lock)
    if locked.spec.name != sweep.lock.spec.name:
        raise FolderError(
            f"{layout.root} holds the sweep {locked.spec.name!r}, not {sweep.lock.spec.name!r}; "
            "choose another folder with results=DIR"
        )
    settings = list(science_changes(locked, sweep.lock))
    changes = [*locked.changed_rules, *settings]
    if changes and not _was_submitted(layout):
        return "relocked", sweep
    planned = read_plan(layout.plan)
    if changes and not settings and _is_finished(layout, planned, sweep.runs):
        # Whatever the rules are now, nothing is left to be made by them.
        return "resumed", replace_spec(sweep, locked, planned, layout)
    if changes:
        raise FolderError(
            f"{layout.root} was locked with other settings; refused, since its runs would not "
            "compare:\n"
            + "\n".join(f"  {change}" for change in changes)
            + "\nUndo the change, or launch into a new folder with results=DIR."
        )
    known = {run.run_id for run in planned}
    added = [run for run in sweep.runs if run.run_id not in known]
    _refuse_twins(planned, added)
    if not added:
        return "resumed", replace_spec(sweep, locked, planned, layout)
    return "extended", _extend(sweep, locked, planned, added, layout)


def _is_finished(
    layout: Layout, planned: Sequence[PlannedRun], wanted: Sequence[PlannedRun]
) -> bool:
    """Return whether every wanted run is planned, and every planned one has its result."""
    if not set(map(_place, wanted)) <= set(map(_place, planned)):
        return False
    states = run_states(layout, [run.run_id for run in planned])
    return not any(states[run.run_id].to_run for run in planned)


def _refuse_twins(planned: Sequence[PlannedRun], added: Sequence[PlannedRun]) -> None:
    """Raise where a run is planned already under another id although its science is the same."""
    known = {_place(run): run.run_id for run in planned}
    twins = [(known[_place(run)], run.run_id) for run in added if _place(run) in known]
    if twins:
        old, new = twins[0]
        raise FolderError(
            f"this version of planprune gives {len(twins)} planned runs other ids, such as {new} "
            f"for {old}; nothing was changed. A science field was added without a pin "
            "(CONTRIBUTING.md says how), or conf/ differs from what made this folder: check out "
            "the commit in its sweep.lock.yaml, or launch into a new folder with results=DIR."
        )


def _place(run: PlannedRun) -> tuple[str, str, str, str, int, str]:
    return (run.benchmark, run.model, run.agent, run.arm, run.seed, run.instance_id)


def _was_submitted(layout: Layout) -> bool:
    """Return whether a launch may have brought results: until then nobody has looked at any."""
    return bool(layout.journal_paths()) or any(layout.submissions.glob("*.json"))


def write_folder(layout: Layout, sweep: Prepared, opened: Opened) -> None:
    """Write rows, plan and lock (last: its existence means the others are there).

    Raises:
        OSError: the folder cannot be written.
    """
    for folder in (
        layout.root,
        layout.claims,
        layout.submissions,
        layout.journals,
        layout.status,
        layout.tables,
        layout.logs,
    ):
        folder.mkdir(parents=True, exist_ok=True)
    layout.drain_request.unlink(missing_ok=True)
    if opened == "resumed":
        replace_bytes(layout.lock, lock_text(sweep.lock).encode())
        return
    replace_bytes(layout.dataset, rows_bytes(sweep.rows))
    replace_bytes(layout.plan, plan_bytes(sweep.runs))
    data = lock_text(sweep.lock).encode()
    if opened != "new":
        replace_bytes(layout.lock, data)
    elif not create_exclusive(layout.lock, data):
        raise FolderError(f"{layout.lock} appeared meanwhile: another launch is under way")


def replace_spec(
    sweep: Prepared, locked: Lock, planned: Sequence[PlannedRun], layout: Layout
) -> Prepared:
    """Return the locked sweep with the new launch's runtime settings (partition, concurrency).

    Images that were staged since are added.
    """
    rows = list(read_rows(layout.dataset).values())
    lock = replace(locked, spec=sweep.lock.spec, **_staged(locked, sweep.lock))
    return Prepared(lock=lock, rows=rows, runs=planned)


def science_changes(locked: Lock, new: Lock) -> Iterator[str]:
    """Yield what of the locked science `new` changes or removes, one line each."""
    yield from _differences(science_of(locked.spec), science_of(new.spec), "")
    for name, seeds in _seeds_by_arm(locked).items():
        gone = seeds - _seeds_by_arm(new).get(name, seeds)
        if gone:
            yield f"arms.{name}: seeds {sorted(gone)} removed"
    for instance_id, digest in locked.rows_sha256.items():
        found = new.rows_sha256.get(instance_id)
        if found is None:
            yield f"instances: {instance_id} removed"
        elif found != digest:
            yield f"instances: the row of {instance_id} changed"
    if locked.spec.analysis.looks or locked.spec.mean_seeds is not None:
        # A look that was taken must say the same again, and seeds were given over these instances.
        yield from (
            f"instances: {name} added, but looks or seeds are planned over the others"
            for name in sorted(set(new.rows_sha256) - set(locked.rows_sha256))
        )
        planned = "looks or seeds are planned over the others"
        for name, seeds in _seeds_by_arm(locked).items():
            if more := _seeds_by_arm(new).get(name, seeds) - seeds:
                yield f"arms.{name}: seeds {sorted(more)} added, but {planned}"
    yield from _staged_changes(locked, new)


def _staged_changes(locked: Lock, new: Lock) -> Iterator[str]:
    for instance_id, digest in locked.image_digests.items():
        found = new.image_digests.get(instance_id, digest)
        if found != digest:
            yield f"images: that of {instance_id} changed, {digest:.30} -> {found:.30}"
    for name, staged in locked.staged_models.items():
        there = new.staged_models.get(name, staged)
        if there.files_sha256 != staged.files_sha256:
            yield (
                f"models.{name}: its staged files changed, revision {staged.revision} -> "
                f"{there.revision}"
            )


def _staged(locked: Lock, new: Lock) -> dict[str, Any]:
    """Return the fields of a lock that say what was staged: as it was, and what came since."""
    return {
        "image_digests": {**new.image_digests, **locked.image_digests},
        "staged_models": {**new.staged_models, **locked.staged_models},
    }


_GROWING = frozenset({"seeds", "instances"})
"""Compared by content above: adding to them is an extension."""


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in old:
            if path == "" and key in _GROWING:
                continue
            here = f"{path}.{key}" if path else str(key)
            if key not in new:
                yield f"{here}: removed"
            else:
                yield from _differences(old[key], new[key], here)
        if path not in {"arms", "models", "agents"}:
            yield from (f"{path}.{key}: added" for key in new if key not in old)
    elif old != new:
        yield f"{path}: {old!r:.60} -> {new!r:.60}"


def _seeds_by_arm(lock: Lock) -> dict[str, set[int]]:
    return {name: set(lock.spec.seeds_of(name)) for name in lock.spec.arms}


def _extend(
    sweep: Prepared,
    locked: Lock,
    planned: Sequence[PlannedRun],
    added: Sequence[PlannedRun],
    layout: Layout,
) -> Prepared:
    """Return the old plan followed by the added runs, and the lock that says so."""
    number = len(locked.extensions) + 1
    start = len(planned)
    appended = [replace(run, position=start + i, extension=number) for i, run in enumerate(added)]
    rows = {**read_rows(layout.dataset), **{str(r["instance_id"]): r for r in sweep.rows}}
    old_cells = {run.cell_digest for run in planned}
    note = Extension(
        added_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=sweep.lock.commit,
        cells=tuple(sorted({run.cell_digest for run in added} - old_cells)),
        instances=tuple(sorted({run.instance_id for run in added} - set(locked.rows_sha256))),
    )
    lock = replace(
        locked,
        spec=sweep.lock.spec,
        methods=sweep.lock.methods,
        rows_sha256={**locked.rows_sha256, **sweep.lock.rows_sha256},
        **_staged(locked, sweep.lock),
        dataset_sha256=sweep.lock.dataset_sha256,
        extensions=(*locked.extensions, note),
    )
    return Prepared(lock=lock, rows=list(rows.values()), runs=[*planned, *appended])
