"""What would keep a sweep from running is found before the first job, all of it at once."""

import json

import pytest

from pipeline.benchmarks.toy.rows import toy_rows
from pipeline.planning.config import sweep_spec
from pipeline.planning.estimate import estimate_text, estimated
from pipeline.planning.preflight import problems
from pipeline.planning.prepare import prepare
from tests.words import words_of


def found(tmp_path, *overrides):
    sweep = prepare(sweep_spec(words_of("+sweep=demo", f"results={tmp_path}", *overrides)))
    return [str(p) for p in problems(sweep, estimated(sweep.lock.spec, sweep.runs))]


def matched(arm, donor):
    return [f"arms.{arm}.matched_to={donor}", f"arms.{arm}.pilot=[[0.1,9],[0.2,5]]"]


def test_the_demo_has_no_problem(tmp_path):
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["analysis.reference=nobody"], "analysis.reference: no arm 'nobody'"),
        (["analysis.contrasts=[nobody]"], "analysis.contrasts: no arm 'nobody'"),
        (
            matched("plan_prune", "nobody"),
            "arms.plan_prune.matched_to: no arm 'nobody'",
        ),
        (
            ["arms.full_history.seeds=[0]", *matched("plan_prune", "full_history")],
            "arms.plan_prune.matched_to: seeds [0] of plan_prune have no run of full_history with",
        ),
        (
            [*matched("plan_prune", "sham_cleanup"), *matched("sham_cleanup", "full_history")],
            "arms.plan_prune.matched_to: sham_cleanup is matched to another arm itself",
        ),
        (["arms.plan_prune.plan=false"], "arms.plan_prune.plan: waits for plan steps"),
        (["model.max_tokens=70000"], "must be below context_length"),
        (["max_runs=3"], "allow them with max_runs=N"),
        (
            ["agent.scaffold=nobody"],
            "agents.mini: agent mini: no scaffold 'nobody'; there",
        ),
        (["agent=trae", "agent.submit=sentinel"], "scaffold trae prints no patch; say submit=diff"),
    ],
)
def test_each_problem_names_the_field_and_the_remedy(tmp_path, overrides, says):
    assert any(says in problem for problem in found(tmp_path, *overrides))


def test_line_pruners_that_lack_something_are_refused_with_the_arms_own_keys(tmp_path):
    arms = ["+arm@arms.v1=swe_pruner", "+arm@arms.rerank=rag"]
    said = found(tmp_path, *arms, f"arms.rerank.policy.path={tmp_path / 'nothing'}")
    assert any(
        p.startswith("arms.v1.policy.url: ") and "arms.v1.policy.url=http://HOST:PORT" in p
        for p in said
    )
    (rerank,) = [p for p in said if p.startswith("arms.rerank.policy.")]
    # Packages first; where they are installed, the model that is not there.
    assert "pip install" in rerank or "arms.rerank.policy.path=FOLDER" in rerank
    assert len(said) == 2
    assert found(tmp_path, *arms, "dry_run=true") == []


def test_all_problems_are_reported_together(tmp_path):
    assert len(found(tmp_path, "max_runs=3", "analysis.reference=nobody")) == 2


def test_a_real_model_in_an_unconfined_local_sandbox_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    endpoint = ["model=endpoint", "model.base_url=http://127.0.0.1:1/v1", "model.served_name=m"]
    assert any("allow_unsandboxed=true" in p for p in found(tmp_path, *endpoint))
    assert found(tmp_path, *endpoint, "allow_unsandboxed=true") == []


def test_the_gpu_hours_cap_is_enforced_and_the_estimate_adds_up(tmp_path):
    spec = sweep_spec(
        [
            "+sweep=demo",
            "model.n_gpus=2",
            "cluster.su_per_core_hour=1",
            "cluster.su_per_gpu_hour=72",
            "cluster.rollout.n_tasks=3",
            "agent.expected_wall_s=3600",
            f"results={tmp_path}",
        ]
    )
    sweep = prepare(spec)
    estimate = estimated(spec, sweep.runs)
    # One run fills one of four slots for an hour: a quarter of a server hour, on two GPUs.
    assert estimate.gpu_hours == pytest.approx(len(sweep.runs) / 4 * 2)
    assert estimate.service_units == pytest.approx(estimate.gpu_hours * 72 + estimate.core_hours)
    assert estimate.wall_hours == pytest.approx(len(sweep.runs) / 4 / 3)
    assert estimate.n_jobs == 3 + 1
    assert "service units" in estimate_text(estimate)
    capped = ["model.n_gpus=2", "agent.expected_wall_s=3600", "max_gpu_hours=1"]
    assert any("GPU-hours are needed" in p for p in found(tmp_path, *capped))


def test_a_small_sweep_starts_no_more_servers_than_its_runs_keep_busy(tmp_path):
    words = ["+sweep=demo", "agent.expected_wall_s=3600", "seeds=[0]", f"results={tmp_path}"]
    words += ["model.n_gpus=2", "cluster.rollout.n_tasks=10", "+cluster.rollout.throttle=6"]
    spec = sweep_spec([*words, "cluster.rollout.concurrency=16"])
    estimate = estimated(spec, prepare(spec).runs)
    assert estimate.n_runs == 48
    assert estimate.gpu_hours == pytest.approx(48 / 16 * 2)
    assert estimate.wall_hours == pytest.approx(1)


def test_images_that_are_not_staged_are_named_with_the_command(tmp_path):
    dataset = tmp_path / "rows.json"
    rows = [{**row, "instance_id": f"org__repo-{n}"} for n, row in enumerate(toy_rows()[:5])]
    dataset.write_text(json.dumps(rows))
    said = found(
        tmp_path,
        "benchmark=verified",
        f"dataset={dataset}",
        "sandbox=apptainer",
        f"cluster.images={tmp_path / 'images'}",
        "model=endpoint",
        "model.base_url=http://127.0.0.1:1/v1",
        "model.served_name=m",
    )
    assert len(said) == 1
    assert "images are not staged" in said[0]
    assert "pipeline.stage images" in said[0]


def test_an_address_without_its_scheme_is_refused_before_anything_runs(tmp_path):
    words = ("model=endpoint", "model.served_name=m", "model.base_url=127.0.0.1:1/v1")
    said = [line for line in found(tmp_path, *words) if "base_url" in line]
    assert said == [
        "models.endpoint.base_url: give the server's address: "
        "model.base_url=http://HOST:PORT/v1, not 127.0.0.1:1/v1"
    ]


def test_an_arm_that_goes_by_a_line_head_needs_a_server_that_has_one(tmp_path):
    arm = "+arm@arms.head=swe_pruner_pro"
    (said,) = found(tmp_path, arm)
    assert said.startswith("models.sim.serve.flags: arm head needs a line head")
    assert "+sweep=line_head" in said
    shipped = prepare(sweep_spec(["+sweep=line_head", f"results={tmp_path}"]))
    said = [str(p) for p in problems(shipped, estimated(shipped.lock.spec, shipped.runs))]
    assert not [p for p in said if "flags" in p]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ([], "models.sim.serve.splice_store_gib: arm plan_prune has cache: splice, and this is of"),
        (
            ["model=tiny"],
            "models.tiny.serve.splice_store_gib: arm plan_prune has cache: splice, and",
        ),
        (["model=tiny", "model.serve.tensor_parallel=2"], "serve.tensor_parallel"),
        (["model=tiny", "model.serve.kv_cache_dtype=fp8"], "serve.kv_cache_dtype"),
        (["model=tiny", "model.serve.prefix_caching=false"], "serve.prefix_caching"),
    ],
)
def test_an_arm_that_splices_needs_a_server_that_does(tmp_path, overrides, says):
    said = found(tmp_path, "arms.plan_prune.cache=splice", *overrides)
    assert any(says in problem for problem in said)


def test_a_server_with_a_store_has_nothing_against_an_arm_that_splices(tmp_path):
    words = ["model=tiny", "model.serve.splice_store_gib=1", "arms.plan_prune.cache=splice"]
    assert not [p for p in found(tmp_path, *words) if "splice" in p]


def test_how_to_splice_is_said_only_where_it_is_done():
    with pytest.raises(Exception, match="add cache: splice"):
        sweep_spec(words_of("+sweep=demo", "arms.plan_prune.splice_repair_tokens=16"))
