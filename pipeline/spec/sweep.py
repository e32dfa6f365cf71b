"""A sweep: the grid of cells, on which instances, under which caps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pipeline.fields.bounds import Amount, Count, Seconds
from pipeline.fields.identity import Runtime, Science, added_science
from pipeline.spec.agent import AgentSpec
from pipeline.spec.analysis import AnalysisPlan
from pipeline.spec.arm import ArmSpec
from pipeline.spec.judge import JudgeSpec
from pipeline.spec.load import LoadSpec
from pipeline.spec.model import ModelSpec
from pipeline.spec.published import PublishedStudy
from pipeline.spec.seed_allocation import allocated_seeds
from pipeline.spec.site import SiteSpec

WORKDIR = "/testbed"
"""Where the repository lies in the official images."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec:
    """A benchmark and where its rows are."""

    name: Science[str]
    format: Science[str] = added_science("swe_bench")
    """What its rows are and how they are graded: a package of `pipeline/benchmarks`."""
    dataset: Runtime[str | None] = None
    """File with the rows (json, jsonl or parquet); its hash goes into the lock."""
    source: Runtime[str | None] = None
    """What that file is staged from: a name on the hub."""
    workdir: Science[str] = WORKDIR
    """Where the repository lies in sandboxes, for rows without a `workdir` of their own."""
    trees: Runtime[str | None] = None
    """Folder of git repositories, OWNER__NAME, for formats whose rows name a commit of one."""
    judge: Runtime[JudgeSpec | None] = None
    """Who grades texts, for formats that ask a judge; named in `grades.harness_version`."""


@dataclass(frozen=True, kw_only=True)
class InstanceFilter:
    """Which instances of the benchmark a sweep runs. All of them where nothing is said."""

    ids: Science[tuple[str, ...]] = ()
    sample: Science[Count | None] = None
    """So many, stratified by repository."""
    sample_seed: Science[int] = 0


@dataclass(frozen=True, kw_only=True)
class SweepSpec:
    """Everything `launch` was asked for, validated."""

    name: Runtime[str]
    benchmark: Science[BenchmarkSpec]
    models: Science[Mapping[str, ModelSpec]]
    agents: Science[Mapping[str, AgentSpec]]
    arms: Science[Mapping[str, ArmSpec]]
    seeds: Science[tuple[int, ...]] = (0,)
    instances: Science[InstanceFilter] = InstanceFilter()
    prior: Runtime[str | None] = None
    """Where `difficulty` is from: a file, or the results folder of a pilot."""
    difficulty: Science[Mapping[str, float]] = added_science({})
    """Instance to the solve rate that is expected of it."""
    mean_seeds: Science[Amount | None] = added_science(None)
    """So many of the seeds an instance has on average, most where its outcome varies most by
    `difficulty`; None: every instance has all of them."""
    sandbox: Science[Literal["local", "apptainer"]] = "local"
    allow_unsandboxed: Runtime[bool] = False
    analysis: Science[AnalysisPlan]
    study: Runtime[PublishedStudy | None] = None
    """The published study that this sweep repeats; what differs is said at launch and in the
    report."""
    calibrated: Runtime[tuple[str, ...]] = ()
    """Arms that must have a budget: this sweep compares them at the same tokens."""
    load: Runtime[LoadSpec | None] = None
    """Measure servers under recorded runs instead of making any."""
    pricing: Runtime[Mapping[str, Any]] = field(default_factory=dict)
    cluster: Runtime[SiteSpec]
    max_attempts: Runtime[Count] = 3
    """Attempts at a run that fails on our side, within one launch."""
    max_refusals_in_a_row: Runtime[Count] = 5
    """A worker stops when so many runs in a row were refused for the form of their requests."""
    max_block_runs: Runtime[Count] = 12
    max_runs: Runtime[Count] = 20_000
    max_gpu_hours: Runtime[Amount | None] = None
    share_cache: Science[bool] = False
    """True: arms may hit each other's prefix cache. Labelled where it is used."""
    fork: Science[bool] = added_science(False)
    """Runs begin with the reference's run of their block, up to their arm's first edit."""
    fork_from: Science[Mapping[str, str]] = added_science({})
    """For `fork`: arm to the arm it begins with instead; an arm that is named with itself, or as
    another's beginning, runs fresh."""
    grade_timeout_s: Science[Seconds] = 1800.0
    salvage_limit_patch: Science[bool] = True
    """Store the sandbox's diff of runs that ended at a limit, graded as a secondary outcome."""
    results: Runtime[str] = "results"
    dry_run: Runtime[bool] = False
    submit: Runtime[bool] = True
    """False: write lock and plan and stop, so that gold patches can be graded first."""
    force: Runtime[bool] = False
    grade: Runtime[bool] = True
    analyze: Runtime[bool] = True

    def __post_init__(self) -> None:
        for arm in self.arms:
            seeds = self.seeds_of(arm)
            twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
            if twice:
                raise ValueError(f"arms.{arm}.seeds: {twice} given twice; name each seed once")
        if (self.mean_seeds is not None or self.analysis.adjust_for_prior) and not self.difficulty:
            raise ValueError(
                "mean_seeds and analysis.adjust_for_prior need to know how hard instances are: "
                "prior=FILE with a solve rate by instance, or prior=DIR with a pilot's results"
            )
        if not (self.models and self.agents and any(map(self.seeds_of, self.arms))):
            raise ValueError("nothing to run: a sweep needs an arm, a model, an agent and a seed")
        limits = {agent.output_limit_bytes for agent in self.agents.values()}
        if len(limits) > 1:
            raise ValueError(
                "agents of one sweep share their sandboxes: give all the same output_limit_bytes"
            )

    @property
    def output_limit_bytes(self) -> int:
        """Raw output beyond this is never kept; the same for all agents."""
        return next(iter(self.agents.values())).output_limit_bytes

    @property
    def expected_wall_s(self) -> float:
        """How long a run of the slowest agent takes, until five runs are known."""
        return max(agent.expected_wall_s for agent in self.agents.values())

    def fork_source(self, arm: str) -> str | None:
        """Return the arm that runs of `arm` begin with; None where they run fresh."""
        if not self.fork or arm in (self.analysis.reference, *self.fork_from.values()):
            return None
        return self.fork_from.get(arm, self.analysis.reference)

    def seed_counts(self, instance_ids: Sequence[str]) -> dict[str, int]:
        """Return how many of an arm's seeds each instance has.

        Raises:
            ValueError: an instance of which the prior says nothing.
        """
        most = max(len(self.seeds_of(arm)) for arm in self.arms)
        if self.mean_seeds is None:
            return dict.fromkeys(instance_ids, most)
        unknown = [name for name in instance_ids if name not in self.difficulty]
        if unknown:
            raise ValueError(
                f"prior={self.prior} says nothing of {len(unknown)} instances, such as "
                f"{unknown[0]}; add them, with 0.5 where nothing is known"
            )
        rates = {name: self.difficulty[name] for name in instance_ids}
        return allocated_seeds(rates, mean=self.mean_seeds, most=most)

    def seeds_in_order(self, arm: str) -> list[int]:
        """Return the seeds of an arm in the order in which instances get them."""
        first = self.analysis.prespecified_seed
        return sorted(self.seeds_of(arm), key=lambda seed: (seed != first, seed))

    def seeds_of(self, arm: str) -> tuple[int, ...]:
        """Return the seeds of an arm: its own, or else the sweep's."""
        own = self.arms[arm].seeds
        return self.seeds if own is None else own


def renamed(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sweep's data with keys that older versions wrote under the names of today."""
    new = dict(data)
    agent, benchmark = new.get("agent"), new.get("benchmark")
    if isinstance(agent, Mapping):
        del new["agent"]
        new["agents"] = {agent.get("name"): agent}
    if isinstance(benchmark, Mapping) and benchmark.get("name") == "toy":
        new["benchmark"] = {"format": "toy", **benchmark}
    return new
