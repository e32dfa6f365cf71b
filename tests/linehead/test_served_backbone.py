"""Hidden states over HTTP: the same store as from Transformers, however the server behaves."""

from dataclasses import replace

from tests.linehead.extra import need_torch

need_torch()

import pytest  # noqa: E402
import torch  # noqa: E402

from pipeline.linehead.__main__ import main  # noqa: E402
from pipeline.linehead.feature_store import open_store  # noqa: E402
from pipeline.linehead.features import run_feature_job  # noqa: E402
from pipeline.linehead.prompts import Prompt  # noqa: E402
from pipeline.linehead.served_backbone import continued, served_backbone  # noqa: E402
from pipeline.linehead.settings import FeatureJob  # noqa: E402
from pipeline.records.failure import ServerError  # noqa: E402
from pipeline.views.kept_lines import OutputTokens, TokenLines  # noqa: E402
from tests.linehead.labelled import labelled_runs  # noqa: E402
from tests.linehead.pooling_server import pooling_server  # noqa: E402
from tests.linehead.tiny import tiny_backbone  # noqa: E402


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def job(tmp_path, backbone):
    runs, labels = labelled_runs(tmp_path)
    return FeatureJob(labels=str(labels), trajectories=(str(runs),), backbone=str(backbone),
                      out=str(tmp_path / "features"), stored_dtype="float32")  # fmt: skip


def run(job):
    return run_feature_job(job, say=lambda _: None, now=lambda: 0.0)


def states_in(folder):
    store = open_store(folder)
    return {f.entry.sample_id: f for f in store.each(store.entries)}


def test_a_servers_states_are_those_of_transformers(job, tmp_path, backbone):
    with pooling_server(backbone) as server:
        run(replace(job, source="vllm", base_url=server.base_url))
    here = replace(job, out=str(tmp_path / "here"))
    run(here)
    served, local = states_in(tmp_path / "features"), states_in(tmp_path / "here")
    assert list(served) == list(local)
    for name, features in served.items():
        torch.testing.assert_close(features.hidden, local[name].hidden, atol=1e-5, rtol=1e-4)
        assert features.entry.prompt_tokens == local[name].entry.prompt_tokens
    assert server.requests[0]["use_activation"] is False


def test_outputs_of_a_run_are_one_request(job, backbone):
    with pooling_server(backbone) as server:
        printed = run(replace(job, source="vllm", base_url=server.base_url))
    assert "9 outputs" in printed
    assert len(server.requests) == 3


def test_a_server_that_fails_is_asked_again(job, backbone):
    waits = []
    with pooling_server(backbone, failures=[503, 500]) as server:
        source = served_backbone(
            replace(job, source="vllm", base_url=server.base_url), sleep=waits.append
        )
        ((_, hidden),) = source.states([prompt_of(range(1, 6), 2)])
        source.close()
    assert hidden.shape == (3, 16)
    assert waits == [1.0, 2.0]


def test_a_stopped_job_goes_on_and_ends_with_the_same_states(job, tmp_path, backbone):
    given = [f"labels={job.labels}", f"trajectories=[{job.trajectories[0]}]", "shard_mb=0.0001",
             f"backbone={backbone}", f"out={tmp_path / 'stopped'}", "source=vllm"]  # fmt: skip
    with pooling_server(backbone) as server:
        words = [*given, f"base_url={server.base_url}"]
        assert main(["features", *words]) == 0
        whole = states_in(tmp_path / "stopped")
        (tmp_path / "stopped" / "index.json").unlink()
        for shard in sorted((tmp_path / "stopped").glob("shard-*"))[5:]:
            shard.unlink()
        n_requests = len(server.requests)
        assert main(["features", *words]) == 0
    assert len(server.requests) - n_requests == 2
    again = states_in(tmp_path / "stopped")
    assert list(again) == list(whole)
    for name, features in again.items():
        torch.testing.assert_close(features.hidden, whole[name].hidden, atol=2e-3, rtol=2e-3)


def test_features_of_one_source_are_never_mixed_with_the_others(job, backbone):
    run(job)
    with (
        pooling_server(backbone) as server,
        pytest.raises(ValueError, match="give another out=FOLDER"),
    ):
        run(replace(job, source="vllm", base_url=server.base_url))


def test_what_is_wrong_with_a_server_is_said(job, backbone, tmp_path):
    served = replace(job, source="vllm")
    with pytest.raises(ValueError, match=r"needs base_url=.*--runner pooling"):
        run(served)
    with pooling_server(backbone, max_model_len=100) as server:
        here = replace(served, base_url=server.base_url)
        with pytest.raises(ValueError, match="the server takes 100"):
            run(here)
    with pooling_server(backbone, failures=[400]) as server:
        here = replace(served, base_url=server.base_url)
        with pytest.raises(ServerError, match=r"refuses /pooling: HTTP 400.*on purpose"):
            run(here)
    other = tiny_backbone(tmp_path / "wider", hidden_size=32)
    with pooling_server(other) as server:
        here = replace(served, base_url=server.base_url)
        with pytest.raises(ServerError, match="is it the backbone"):
            run(here)


def prompt_of(ids, start):
    ids = tuple(ids)
    n = len(ids) - start
    lines = TokenLines(first=torch.zeros(n).numpy(), last=torch.zeros(n).numpy(), n_lines=1)
    place = OutputTokens(start=start, end=len(ids), lines=lines)
    return Prompt(message_index=len(ids), ids=ids, output=place)


def test_prompts_that_continue_each_other_are_one_group():
    prompts = [prompt_of(ids, 0) for ids in ([1], [1, 2], [1, 2, 3], [2, 3], [2, 3, 4], [2, 4])]
    assert [[len(p.ids) for p in group] for group in continued(prompts)] == [[1, 2, 3], [2, 3], [2]]
    assert list(continued([])) == []
