"""Labels on disk, and the job that makes them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.linehead.config import ConfigError, settings_of
from pipeline.linehead.label_job import run_label_job
from pipeline.linehead.label_table import labelled, read_labels, write_labels
from pipeline.linehead.settings import LabelJob
from tests.fakes import ScriptedModel, says
from tests.linehead.runs import many_lines, run_of, samples_in

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "trajectories"


def test_labels_come_back_as_they_were_written(tmp_path):
    (sample,) = samples_in(run_of(("", "c", many_lines(3))))
    label = labelled(sample, np.array([True, False, True]), confidence=0.5, reasoning="é")
    write_labels(tmp_path / "l.parquet", [label], {"labeller": "test"})
    found = read_labels(tmp_path / "l.parquet")
    assert found.provenance == {"labeller": "test", "version": 2}
    (back,) = found.outputs
    assert back.kept.tolist() == [True, False, True]
    assert (back.text, back.command, back.confidence) == (sample.text, "c", 0.5)


def test_the_same_labels_give_the_same_file(tmp_path):
    (sample,) = samples_in(run_of(("", "c", many_lines(3))))
    label = labelled(sample, np.array([True, False, True]))
    write_labels(tmp_path / "a.parquet", [label], {"labeller": "test"})
    write_labels(tmp_path / "b.parquet", [label], {"labeller": "test"})
    assert read_labels(tmp_path / "a.parquet").sha256 == read_labels(tmp_path / "b.parquet").sha256


def test_another_parquet_file_or_a_newer_version_is_refused(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="no file of line labels"):
        read_labels(tmp_path / "x.parquet")
    write_labels(tmp_path / "l.parquet", [], {"version": 99})
    with pytest.raises(ValueError, match="version 99"):
        read_labels(tmp_path / "l.parquet")


def test_real_runs_are_labelled_by_rule_with_their_provenance(tmp_path):
    if not REAL.exists():
        pytest.skip(f"{REAL} is not here: the recorded trajectories are not part of the project")
    job = LabelJob(trajectories=(str(REAL),), out=str(tmp_path / "labels.parquet"))
    printed, complete = run_label_job(job, {})
    assert complete
    assert "104 outputs, 5,201 lines" in printed[0]
    labels = read_labels(tmp_path / "labels.parquet")
    assert len(labels.provenance["sources"]) == 6
    assert labels.provenance["heuristic"]["min_chars"] == 8
    shares = [o.kept.mean() for o in labels.outputs]
    assert 0.05 < np.mean(shares) < 0.95
    assert all(len(o.kept) == o.text.count("\n") + (not o.text.endswith("\n"))
               for o in labels.outputs)  # fmt: skip


def judged_once(tmp_path, *replies):
    """Run the labelling of one output by a judge that gives `replies`."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    actions = [{"command": "cat f", "tool_call_id": "c1"}]
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [call], "extra": {"actions": actions}},
        {"role": "tool", "tool_call_id": "c1", "content": many_lines(20), "extra": {}},
    ]
    file = tmp_path / "a.traj.json"
    file.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1.1", "messages": messages}))
    overrides = [f"trajectories=[{file}]", f"out={tmp_path}/l.parquet", "labeller=judge",
                 "judge.model=scripted", "judge.input_price=1.0"]  # fmt: skip
    with ScriptedModel(replies) as server:
        job = settings_of(LabelJob, "label", [*overrides, f"judge.base_url={server.base_url}"])
        return *run_label_job(job, {}), server


def test_a_judge_without_one_usable_answer_leaves_the_labels_alone_and_says_why(tmp_path):
    (sample,) = samples_in(run_of(("", "c", many_lines(3))))
    write_labels(tmp_path / "l.parquet", [labelled(sample, np.array([True, False, True]))], {})
    before = (tmp_path / "l.parquet").read_bytes()
    printed, complete, _ = judged_once(tmp_path, *[says("Keep it all!")] * 3)
    assert not complete
    assert "is not written: the judge gave no label" in printed[0]
    assert "1 asked, 0 known from before, 1 without a usable answer" in printed[1]
    assert "there is no JSON object in it; another judge.model" in printed[2]
    assert (tmp_path / "l.parquet").read_bytes() == before


def test_paths_that_cannot_be_right_are_named(tmp_path):
    with pytest.raises(ConfigError, match=f"out={tmp_path}/labels.parquet"):
        run_label_job(LabelJob(trajectories=("x",), out=str(tmp_path)), {})
    with pytest.raises(ValueError, match=r"no label file .*make one with `linehead label`"):
        read_labels(tmp_path / "l.parquet")
    (tmp_path / "l.parquet").write_text("# not Parquet")
    with pytest.raises(ValueError, match=r"l\.parquet is no file of line labels"):
        read_labels(tmp_path / "l.parquet")


def test_a_judged_job_says_what_it_cost_and_keeps_the_endpoint_to_itself(tmp_path):
    reply = says(json.dumps({"confidence": 1.0, "keep": [[1, 5]], "reasoning": ""}))
    printed, complete, server = judged_once(tmp_path, reply)
    assert complete
    assert "1 asked" in printed[1]
    found = read_labels(tmp_path / "l.parquet")
    assert found.outputs[0].kept.sum() == 5
    assert found.provenance["judge"]["model"] == "scripted"
    assert server.base_url not in json.dumps(found.provenance)


def test_runs_without_a_fitting_output_are_an_error_that_says_what_to_lower(tmp_path):
    file = tmp_path / "a.traj.json"
    messages = [{"role": "user", "content": "u"}]
    file.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1.1", "messages": messages}))
    with pytest.raises(ValueError, match=r"lower samples\.min_lines"):
        run_label_job(LabelJob(trajectories=(str(file),), out=str(tmp_path / "l.parquet")), {})


def test_settings_name_what_is_missing_misspelt_or_wrong():
    with pytest.raises(ConfigError, match="trajectories=VALUE"):
        settings_of(LabelJob, "label", ["out=x"])
    given = ["trajectories=[a]", "out=x"]
    with pytest.raises(ConfigError, match="did you mean `margin_lines`"):
        settings_of(LabelJob, "label", [*given, "heuristic.margin_line=2"])
    with pytest.raises(ConfigError, match="min_lines"):
        settings_of(LabelJob, "label", [*given, "samples.min_lines=many"])
    with pytest.raises(ConfigError, match="no key=value"):
        settings_of(LabelJob, "label", [*given, "--help"])
    job = settings_of(LabelJob, "label", [*given, "heuristic.horizon_turns=3"])
    assert (job.heuristic.horizon_turns, job.samples.min_lines) == (3, 15)
