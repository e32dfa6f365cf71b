"""Hidden states of outputs: equal to one plain forward pass, however they were computed."""

from dataclasses import replace
from itertools import count

from tests.linehead.extra import need_torch

need_torch()

import pytest  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModel  # noqa: E402

from pipeline.linehead.__main__ import main  # noqa: E402
from pipeline.linehead.backbone import loaded_backbone  # noqa: E402
from pipeline.linehead.config import settings_of  # noqa: E402
from pipeline.linehead.feature_store import open_store  # noqa: E402
from pipeline.linehead.features import run_feature_job  # noqa: E402
from pipeline.linehead.prompts import PromptError, PromptMaker, renders_calls  # noqa: E402
from pipeline.linehead.settings import FeatureJob  # noqa: E402
from tests.linehead.labelled import labelled_runs  # noqa: E402
from tests.linehead.runs import many_lines, run_of  # noqa: E402
from tests.linehead.tiny import tiny_backbone, tiny_tokenizer  # noqa: E402


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return tiny_backbone(tmp_path_factory.mktemp("tiny"))


def maker(run, **more):
    settings = {"tools": None, "max_tokens": 4000, "template_kwargs": {}, "calls_as_text": False}
    return PromptMaker(tiny_tokenizer(), run.trajectory, **{**settings, **more})


# --- prompts -------------------------------------------------------------------------------------
def test_a_prompt_ends_with_the_output_and_says_where_it_is():
    run = run_of(("a", "cat f", many_lines(5)), ("b", "cat g", "é☃\r\nsecond 🙂\n"))
    prompt = maker(run).prompt(5)
    tokenizer = tiny_tokenizer()
    text = tokenizer.decode(list(prompt.ids[prompt.output.start :]))
    # The template's end marker follows; the output's last token may hold nothing of it here.
    assert text == "é☃\r\nsecond 🙂\n"
    assert prompt.output.end == len(prompt.ids)
    assert prompt.output.lines.n_lines == 2


def test_an_output_that_came_twice_is_found_at_its_last_place():
    run = run_of(("a", "cat f", many_lines(3)), ("b", "cat f", many_lines(3)))
    first, second = (maker(run).prompt(i) for i in (3, 5))
    assert second.output.start > first.output.end
    assert second.output.end == len(second.ids)


def test_lines_that_the_template_trims_away_have_no_tokens():
    run = run_of(("a", "cat f", "\n\n  x y\nz\n\n"))
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = tokenizer.chat_template.replace("m.content }}", "m.content | trim }}")
    trimmed = PromptMaker(tokenizer, run.trajectory, tools=None, max_tokens=4000,
                          template_kwargs={}, calls_as_text=False)  # fmt: skip
    lines = trimmed.prompt(3).output.lines
    assert lines.n_lines == 5
    counts = lines.tokens_per_line.tolist()
    assert counts[0] == counts[1] == counts[4] == 0
    assert min(counts[2:4]) > 0


def test_a_template_that_hides_outputs_is_refused():
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{{ messages | length }}"
    run = run_of(("a", "c", "some text"))
    hidden = PromptMaker(tokenizer, run.trajectory, tools=None, max_tokens=4000,
                         template_kwargs={}, calls_as_text=False)  # fmt: skip
    with pytest.raises(PromptError, match="does not show the output"):
        hidden.prompt(3)


def test_long_prompts_lose_their_oldest_turns_and_never_the_task():
    run = run_of(*[(f"say {i}", f"cat {i}", many_lines(6, f"o{i}")) for i in range(12)])
    whole = maker(run)
    full = len(whole.prompt(25).ids)
    short = maker(run, max_tokens=full // 2)
    tokenizer = tiny_tokenizer()
    starts = []
    for index in range(3, 26, 2):
        prompt = short.prompt(index)
        assert len(prompt.ids) <= full // 2
        text = tokenizer.decode(list(prompt.ids))
        assert "Fix it." in text
        assert text.endswith(run.trajectory.messages[index].content)
        starts.append(text.split("say ")[1][0])
    assert starts == sorted(starts)
    assert starts[0] == "0" != starts[-1]
    # Half a window goes at once: neighbours mostly share their beginning.
    assert len(set(starts)) <= 5
    with pytest.raises(PromptError, match="without any older turn"):
        maker(run, max_tokens=20).prompt(3)


def test_calls_go_into_the_text_for_a_template_that_leaves_them_out():
    tokenizer = tiny_tokenizer()
    assert renders_calls(tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace("m.tool_calls or []", "[]")
    assert not renders_calls(tokenizer)
    run = run_of(("a", "cat f", "x\n"))
    prompt = PromptMaker(tokenizer, run.trajectory, tools=None, max_tokens=4000,
                         template_kwargs={}, calls_as_text=True).prompt(3)  # fmt: skip
    assert 'bash {"command": "1"}' in tokenizer.decode(list(prompt.ids))


# --- states --------------------------------------------------------------------------------------
@pytest.mark.parametrize("chunk_tokens", [7, 1000])
def test_states_equal_those_of_one_plain_pass_whatever_was_cached(backbone, chunk_tokens):
    job = FeatureJob(labels="", trajectories=(), backbone=str(backbone), out="",
                     chunk_tokens=chunk_tokens)  # fmt: skip
    cached = loaded_backbone(job)
    plain = AutoModel.from_pretrained(backbone).eval()
    torch.manual_seed(1)
    base = torch.randint(0, 300, (60,)).tolist()
    other = [*base[:25], *torch.randint(0, 300, (40,)).tolist()]
    # Longer, shorter, edited, the same again: every way in which prompts follow each other.
    for ids, start, end in [
        (base, 10, 40), (base, 30, 60), (other, 20, 65), (base[:30], 0, 30), (base[:30], 5, 12),
        (base[:30], 5, 12), (other, 64, 65),
    ]:  # fmt: skip
        with torch.inference_mode():
            expected = plain(torch.tensor([ids[:end]])).last_hidden_state[0, start:end]
        torch.testing.assert_close(
            cached.states_of(ids, start, end), expected, atol=1e-5, rtol=1e-4
        )


def test_what_prompts_share_is_computed_once(backbone):
    job = FeatureJob(labels="", trajectories=(), backbone=str(backbone), out="")
    cached = loaded_backbone(job)
    cached.states_of(list(range(50)), 40, 50)
    cached.states_of(list(range(70)), 60, 70)
    assert cached.n_computed == 70


# --- the job, and the four commands --------------------------------------------------------------
def label_and_features(tmp_path, backbone):
    runs, labels = labelled_runs(tmp_path)
    features = tmp_path / "features"
    given = [f"labels={labels}", f"trajectories=[{runs}]", f"backbone={backbone}",
             f"out={features}", "threads=1"]  # fmt: skip
    return given, features


def test_from_trajectories_to_an_evaluated_head_with_the_commands_of_the_docs(
    tmp_path, backbone, capsys
):
    given, features = label_and_features(tmp_path, backbone)
    assert main(["features", *given]) == 0
    assert "9 outputs" in capsys.readouterr().out
    store = open_store(features)
    assert store.hidden_size == 16
    assert store.facts["architectures"] == ["Qwen3Model"]
    for item in store.each(store.entries):
        assert item.hidden.dtype == torch.float16
        assert item.hidden.shape == (item.entry.n_tokens, 16)
        assert (item.lines.tokens_per_line > 0).all()
    head, out = tmp_path / "head", tmp_path / "evaluation"
    options = ["split.test_instances=[a__b-2]", "train.epochs=2", "threads=1"]
    assert main(["train", f"features={features}", f"out={head}", *options]) == 0
    assert main(["probe", f"features={features}", f"out={tmp_path / 'p'}"]) == 0
    capsys.readouterr()
    assert main(["eval", f"features={features}", f"heads=[{head}]", f"out={out}"]) == 0
    assert "| head | balanced_focal | yes |" in capsys.readouterr().out
    assert (out / "evaluation.md").exists()


def test_a_stopped_feature_job_goes_on_and_ends_with_the_same_states(tmp_path, backbone):
    given, features = label_and_features(tmp_path, backbone)
    assert main(["features", *given, "shard_mb=0.001"]) == 0
    whole = open_store(features)
    expected = {f.entry.sample_id: f.hidden for f in whole.each(whole.entries)}
    (features / "index.json").unlink()
    for shard in sorted(features.glob("shard-*"))[3:]:
        shard.unlink()
    assert main(["features", *given, "shard_mb=0.001"]) == 0
    again = open_store(features)
    assert [e.sample_id for e in again.entries] == [e.sample_id for e in whole.entries]
    for item in again.each(again.entries):
        # Half precision: another chunking moves the last bit.
        torch.testing.assert_close(
            item.hidden, expected[item.entry.sample_id], atol=2e-3, rtol=2e-3
        )


def test_runs_other_than_the_labelled_ones_are_refused(tmp_path, backbone):
    given, _ = label_and_features(tmp_path, backbone)
    job = FeatureJob(
        labels=given[0].removeprefix("labels="), backbone=str(backbone), out=str(tmp_path / "x"),
        trajectories=(str(tmp_path / "runs" / "a__b-0.traj.json"),),
    )  # fmt: skip
    with pytest.raises(ValueError, match="lack 2 of the labelled runs"):
        run_feature_job(job, say=print, now=lambda: 0.0)
    with pytest.raises(ValueError, match="raise max_prompt_tokens"):
        run_feature_job(
            replace(job, trajectories=(str(tmp_path / "runs"),), max_prompt_tokens=5,
                    out=str(tmp_path / "y")),
            say=lambda _: None, now=lambda: 0.0,
        )  # fmt: skip


def test_a_job_that_is_interrupted_keeps_what_it_has_and_ends_as_if_it_had_not_been(
    tmp_path, backbone
):
    given, features = label_and_features(tmp_path, backbone)
    assert main(["features", *given]) == 0
    whole = open_store(features)
    job = settings_of(FeatureJob, "features", [*given, f"out={tmp_path / 'stopped'}"])
    told = []

    def say(text):
        told.append(text)
        if len(told) == 3:
            raise KeyboardInterrupt

    # A clock on which every output takes long, so that each is told of.
    with pytest.raises(KeyboardInterrupt):
        run_feature_job(job, say=say, now=count(0, 60).__next__)
    assert told[2].startswith("3 of 9 outputs")
    run_feature_job(job, say=told.append, now=lambda: 0.0)
    assert told[3] == "3 of 9 outputs are here already"
    stopped = open_store(tmp_path / "stopped")
    assert stopped.sha256 == whole.sha256
    for a, b in zip(whole.each(whole.entries), stopped.each(stopped.entries), strict=True):
        assert a.entry.sample_id == b.entry.sample_id
        torch.testing.assert_close(a.hidden, b.hidden, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("backbone=nowhere", "no model in backbone=nowhere"),
        ("backbone={folder}", "no model in backbone="),
        ("labels=nowhere.parquet", "no label file nowhere.parquet"),
        ("device=cuda:99", "device=cuda:99"),
        ("trajectories=nowhere", "is a list, written [A, B]"),
    ],
)
def test_what_is_not_there_is_named_with_what_to_do(tmp_path, backbone, capsys, change, says):
    given, _ = label_and_features(tmp_path, backbone)
    (tmp_path / "empty").mkdir()
    assert main(["features", *given, change.format(folder=tmp_path / "empty")]) != 0
    assert says in capsys.readouterr().err
