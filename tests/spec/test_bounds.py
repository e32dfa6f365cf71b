"""A number that makes no sense is refused by its name, before anything is planned."""

import typing

import pytest

from pipeline.planning.config import ConfigError, sweep_spec
from pipeline.serving.sim.config import FAULTS
from pipeline.spec.model import FaultName


@pytest.mark.parametrize(
    "override",
    [
        "cluster.rollout.concurrency=0",
        "cluster.rollout.n_tasks=0",
        "cluster.grading.concurrency=-1",
        "max_attempts=0",
        "agent.step_limit=-3",
        "agent.command_timeout_s=0",
        "model.context_length=-1",
        "model.sampling.temperature=-0.5",
        "instances.sample=0",
        "analysis.margin=5",
        "analysis.resamples=0",
        "arms.plan_prune.policy.protect_last_turns=-1",
        "arms.plan_prune.policy.every_k=0",
        "grade_timeout_s=.inf",
    ],
)
def test_a_number_out_of_its_bounds_is_refused_by_its_name(override):
    name = override.partition("=")[0].removeprefix("model.")
    with pytest.raises(ConfigError, match=name.rpartition(".")[2]):
        sweep_spec(["+sweep=demo", override])


def test_an_unknown_fault_is_refused_and_the_known_ones_are_listed():
    with pytest.raises(ConfigError, match="http500"):
        sweep_spec(["+sweep=demo", "model.sim.faults={http_500: 0.5}"])


def test_the_config_knows_the_faults_of_the_simulated_server():
    assert set(typing.get_args(FaultName)) == set(FAULTS)


@pytest.mark.parametrize("override", ["seeds=[0,1,0]", "arms.plan_prune.seeds=[3,3]"])
def test_a_seed_given_twice_is_refused(override):
    with pytest.raises(ConfigError, match="name each seed once"):
        sweep_spec(["+sweep=demo", override])


def test_a_sweep_without_a_run_is_refused():
    with pytest.raises(ConfigError, match="nothing to run"):
        sweep_spec(["+sweep=demo", "seeds=[]"])
