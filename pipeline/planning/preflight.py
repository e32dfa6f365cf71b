"""Every reason why a sweep would fail, found before its first job and reported all at once."""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.agent.scaffold import scaffold_for
from pipeline.arms.line_pruning import LinePruning
from pipeline.benchmarks.registry import BUILT_IN, format_of
from pipeline.benchmarks.rows import image_reference
from pipeline.benchmarks.toy.recipes import recipe_for
from pipeline.planning.disk_estimate import BYTES_A_RUN
from pipeline.planning.estimate import Estimate, hours_text, range_text
from pipeline.planning.forks import fork_problems
from pipeline.planning.history import History
from pipeline.planning.judge_check import judge_problems
from pipeline.planning.levers import expected_gpu_hours
from pipeline.planning.limits import limit_problems
from pipeline.planning.prepare import Prepared
from pipeline.planning.problem import WORDS, Problem
from pipeline.planning.slurm_site import unusable_words
from pipeline.plural import plural
from pipeline.pruners.extra import missing_parts as missing_parts_of_pruner
from pipeline.sandbox.images import ImageStore
from pipeline.serving.parts import missing_parts
from pipeline.spec.sweep import SweepSpec

MIN_FREE_BYTES = 200_000_000


def is_real(spec: SweepSpec) -> bool:
    """Return whether anything is to be learned from the sweep: the built-in benchmark is a demo."""
    return spec.benchmark.format != BUILT_IN


def problems(sweep: Prepared, estimate: Estimate, past: History | None = None) -> list[Problem]:
    """Return everything that keeps `sweep` from being launched; empty when it can be.

    Args:
        sweep: the sweep.
        estimate: what is still to be run will take.
        past: of the folder; None for a new one.
    """
    past = past or History(todo=sweep.runs)
    spec = sweep.lock.spec
    return [
        *_words(spec),
        *_agents(spec),
        *_arms(spec),
        *fork_problems(spec),
        *_line_pruners(spec),
        *_line_heads(spec),
        *_splicing(spec),
        *_models(spec, sweep.rows),
        *_sandbox(spec, sweep),
        *judge_problems(spec),
        *limit_problems(spec, past),
        *_caps(sweep, estimate, past),
        *_disk(spec, estimate),
    ]


def _words(spec: SweepSpec) -> Iterator[Problem]:
    for key, message in unusable_words(spec, Path(spec.results).absolute()):
        yield Problem(field=key, message=message)


def _agents(spec: SweepSpec) -> Iterator[Problem]:
    for name, agent in spec.agents.items():
        try:
            scaffold_for(agent)
        except ValueError as error:
            yield Problem(field=f"agents.{name}", message=str(error))


def _arms(spec: SweepSpec) -> Iterator[Problem]:
    names = ", ".join(spec.arms)
    if len(spec.arms) > 1 and spec.analysis.reference not in spec.arms:
        yield Problem(
            field="analysis.reference",
            message=f"no arm {spec.analysis.reference!r} in this sweep; it has {names}",
        )
    for name in spec.analysis.contrasts:
        if name not in spec.arms:
            yield Problem(field="analysis.contrasts", message=f"no arm {name!r}; there are {names}")
    yield from _uncalibrated(spec)
    for name, arm in spec.arms.items():
        if arm.policy.needs_plan and not arm.plan:
            message = "waits for plan steps and has no plan: set plan=true, or trigger=every_k"
            yield Problem(field=f"arms.{name}.plan", message=message)
        yield from _donors(spec, name, arm.matched_to)


def _uncalibrated(spec: SweepSpec) -> Iterator[Problem]:
    """Yield what arms of a budget-matched sweep still need, by the name that a pilot gives them."""
    missing = [n for n in spec.calibrated if n in spec.arms and spec.arms[n].budget is None]
    stems = {name.rpartition("_")[0] or name: spec.arms[name].policy.kind for name in missing}
    for stem, kind in stems.items():
        message = (
            f"has no budget: python -m pipeline.replay PILOT --pilot {kind} --values V... --as "
            f"{stem} sets all three on pilot recordings outside this sweep (docs/budgets.md)"
        )
        yield Problem(field=f"arms.{stem}_*", message=message)


def _donors(spec: SweepSpec, name: str, donor: str | None) -> Iterator[Problem]:
    """Yield why the runs of arm `donor` cannot set the budgets of arm `name`."""
    if donor is None:
        return
    field, names = f"arms.{name}.matched_to", ", ".join(spec.arms)
    if donor not in spec.arms:
        message = f"no arm {donor!r} in this sweep; add it, or name one of {names}"
        yield Problem(field=field, message=message)
        return
    if spec.arms[donor].matched_to is not None:
        message = f"{donor} is matched to another arm itself; name an arm that is not"
        yield Problem(field=field, message=message)
    # A run's own seed would leak how hard that run was (docs/methods.md, Budgets).
    alone = [s for s in spec.seeds_of(name) if not set(spec.seeds_of(donor)) - {s}]
    if alone:
        message = (
            f"seeds {alone} of {name} have no run of {donor} with another seed; give the sweep, "
            f"or arms.{donor}.seeds, two seeds or more"
        )
        yield Problem(field=field, message=message)


def _line_pruners(spec: SweepSpec) -> Iterator[Problem]:
    text_mode = any(model.mode == "text" for model in spec.models.values())
    for name, arm in spec.arms.items():
        if isinstance(arm.policy, LinePruning) and not spec.dry_run:
            for parameter, message in missing_parts_of_pruner(arm.policy, text_mode=text_mode):
                named = message.replace("arms.ARM.", f"arms.{name}.")
                yield Problem(field=f"arms.{name}.policy.{parameter}", message=named)


def _line_heads(spec: SweepSpec) -> Iterator[Problem]:
    """Yield the servers that are known to have no line head for the arms that go by one."""
    arms = [name for name, arm in spec.arms.items() if arm.policy.needs_head]
    for name, model in spec.models.items():
        # What a server has that is running already cannot be known here.
        if not arms or spec.dry_run or model.kind == "endpoint":
            continue
        if not any("LineScoreConnector" in flag for flag in model.serve.flags):
            yield Problem(
                field=f"models.{name}.serve.flags",
                message=(
                    f"arm {arms[0]} needs a line head in this model's server, and nothing here "
                    "puts one there; docs/linehead.md has the flags, +sweep=line_head an example"
                ),
            )


def _splicing(spec: SweepSpec) -> Iterator[Problem]:
    """Yield the servers that are known not to splice, for the arms that do."""
    arms = [name for name, arm in spec.arms.items() if arm.cache == "splice"]
    for name, model in spec.models.items():
        # What a server has that is running already cannot be known here.
        if not arms or model.kind == "endpoint":
            continue
        serve = model.serve
        reasons = {
            "serve.splice_store_gib": (
                "gives the server no memory for it: set it, such as 4"
                if model.kind == "vllm"
                else "is of vLLM servers only"
            ),
            "serve.tensor_parallel": "must be 1 for it",
            "serve.kv_cache_dtype": "must be auto for it",
            "serve.prefix_caching": "must be on for it",
            "serve.flags": "puts a line head there: a server has one connector",
        }
        stands = (
            serve.splice_store_gib is None or model.kind != "vllm",
            serve.tensor_parallel > 1,
            serve.kv_cache_dtype != "auto",
            not serve.prefix_caching,
            any("LineScoreConnector" in flag for flag in serve.flags),
        )
        for (key, why), is_so in zip(reasons.items(), stands, strict=True):
            if is_so:
                message = f"arm {arms[0]} has cache: splice, and this {why} (docs/splice.md)"
                yield Problem(field=f"models.{name}.{key}", message=message)


def _models(spec: SweepSpec, rows: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    unknown = [row for row in rows if recipe_for(row) is None]
    for name, model in spec.models.items():
        if model.kind == "endpoint" and not re.match(r"https?://\w", model.base_url or ""):
            yield Problem(
                field=f"models.{name}.base_url",
                message="give the server's address: model.base_url=http://HOST:PORT/v1"
                + (f", not {model.base_url}" if model.base_url else ""),
            )
        if model.kind == "vllm" and not spec.dry_run:
            for key, message in missing_parts(model, strict=is_real(spec)).items():
                yield Problem(field=f"models.{name}.{key}", message=message)
        if model.kind == "sim" and unknown:
            yield Problem(
                field=f"models.{name}",
                message=(
                    "the simulated agent only knows the instances of the toy benchmark; "
                    "choose another model with model=NAME"
                ),
            )
        if model.max_tokens >= model.context_length:
            yield Problem(
                field=f"models.{name}.max_tokens",
                message=f"must be below context_length ({model.context_length})",
            )


def _sandbox(spec: SweepSpec, sweep: Prepared) -> Iterator[Problem]:
    if spec.sandbox == "local":
        if format_of(spec.benchmark).checkout is None:
            yield Problem(
                field="sandbox",
                message=(
                    f"instances of {spec.benchmark.name} live in container images; "
                    "use sandbox=apptainer"
                ),
            )
        real = [name for name, model in spec.models.items() if model.kind != "sim"]
        if real and not spec.allow_unsandboxed and shutil.which("bwrap") is None:
            yield Problem(
                field="sandbox",
                message=(
                    f"{', '.join(real)} would run its commands on this machine unconfined; "
                    "install bubblewrap, use sandbox=apptainer, or accept it with "
                    "allow_unsandboxed=true"
                ),
            )
    elif is_real(spec) and not spec.dry_run:
        yield from _images(spec, sweep)


def _images(spec: SweepSpec, sweep: Prepared) -> Iterator[Problem]:
    folder = spec.cluster.images
    if folder is None:
        yield Problem(
            field="cluster.images",
            message="name the folder of staged images: cluster.images=DIR",
        )
        return
    store = ImageStore(Path(folder), image_reference)
    missing = store.missing(sweep.rows)
    if missing:
        named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        yield Problem(
            field="cluster.images",
            message=(
                f"{plural(len(missing), 'image is', 'images are')} not staged in {folder} "
                f"({named}); stage them: "
                f"python -m pipeline.stage images --sweep {WORDS}"
            ),
        )


def expected_hours(sweep: Prepared, estimate: Estimate, past: History) -> tuple[float, float]:
    """Return the least and the most GPU-hours that the open runs are expected to use."""
    return expected_gpu_hours(
        sweep.lock.spec,
        past.todo,
        estimate.gpu_hours,
        is_whole=len(past.todo) == len(sweep.runs),
    )


def _caps(sweep: Prepared, estimate: Estimate, past: History) -> Iterator[Problem]:
    spec = sweep.lock.spec
    if estimate.n_runs > spec.max_runs:
        yield Problem(
            field="max_runs",
            message=f"{plural(estimate.n_runs, 'run is', 'runs are')} planned; allow them with "
            "max_runs=N",
        )
    cap, used = spec.max_gpu_hours, past.used_gpu_hours
    expected = expected_hours(sweep, estimate, past)
    # With the most that is expected: a sweep that its cap ends is no result.
    if cap is not None and used + expected[1] > cap:
        spent = f"{hours_text(used)} GPU-hours are used, and " if used else ""
        without = (
            f" ({hours_text(estimate.gpu_hours)} without forks and looks)"
            if expected[0] < estimate.gpu_hours
            else ""
        )
        yield Problem(
            field="max_gpu_hours",
            message=(
                f"{spent}about {range_text(expected)} GPU-hours are needed{without}, "
                f"{hours_text(cap)} allowed for the whole sweep; raise the cap or cut the grid"
            ),
        )


def _disk(spec: SweepSpec, estimate: Estimate) -> Iterator[Problem]:
    folder = Path(spec.results).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    needed = MIN_FREE_BYTES + estimate.n_runs * BYTES_A_RUN
    if free < needed:
        yield Problem(
            field="results",
            message=f"{folder} has {free / 1e9:.1f} GB free; {needed / 1e9:.1f} GB may be needed",
        )
