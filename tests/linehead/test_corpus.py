"""The released corpus: each line a labelled output with its own context."""

import json

import pytest

from pipeline.linehead.__main__ import main
from pipeline.linehead.corpus import corpus_records
from pipeline.linehead.label_table import read_labels
from pipeline.linehead.sources import recorded_runs

RECORD = {
    "instance_id": "a__b-1",
    "step_idx": 7,
    "tool_call": {"name": "bash", "arguments": {"command": "cat x.py"}},
    "tool_response": "".join(f"line {n}\n" for n in range(1, 17)),
    "history": [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "I look.", "tool_calls": []},
        {"role": "tool", "content": "x.py"},
    ],
    "next_turn": [{"role": "assistant", "content": "Line 3 is wrong."}],
    "kept_frags": [1, 3],
    "total_lines": 16,
    "reasoning": "The bug is there.",
    "confidence": "skeleton",
}


@pytest.fixture
def corpus(tmp_path):
    def written(*changes):
        path = tmp_path / "corpus.jsonl"
        path.write_text("".join(json.dumps({**RECORD, **change}) + "\n" for change in changes))
        return path

    return written


def test_a_record_is_a_run_whose_labelled_output_has_its_context(corpus):
    (record,) = corpus_records(corpus({}))
    messages = record.run.trajectory.messages
    assert [m.role for m in messages] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    output = messages[record.message_index]
    assert (output.content, output.command) == (RECORD["tool_response"], "cat x.py")
    assert output.tool_call_id == messages[record.message_index - 1].tool_calls[0].id
    assert [i + 1 for i, kept in enumerate(record.kept) if kept] == [1, 3]


def test_the_corpus_becomes_a_labels_file_with_what_followed(corpus, tmp_path, capsys):
    short = {"tool_response": "one\ntwo\n", "kept_frags": [1], "step_idx": 8}
    path = corpus({}, short)
    out = tmp_path / "labels.parquet"
    assert main(["label", f"trajectories=[{path}]", f"out={out}", "labeller=corpus"]) == 0
    assert "1 output, 16 lines, 12.5% of them kept" in capsys.readouterr().out
    labels = read_labels(out)
    (label,) = labels.outputs
    assert "Line 3 is wrong." in label.followed
    assert labels.provenance["labeller"] == "corpus"
    assert label.run_id in {run.run_id for run in recorded_runs([path])}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kept_frags": [17]}, "line 17 is kept of an output with 16 lines"),
        ({"tool_call": None}, "no record of the labelled corpus"),
    ],
)
def test_a_line_that_is_no_record_is_named(corpus, change, said):
    with pytest.raises(ValueError, match=said) as raised:
        list(corpus_records(corpus({}, change)))
    assert "corpus.jsonl, line 2" in str(raised.value)


def test_a_folder_without_a_corpus_is_refused(tmp_path, capsys):
    words = ["label", f"trajectories=[{tmp_path}]", f"out={tmp_path}/l.parquet", "labeller=corpus"]
    assert main(words) == 1
    assert "is no corpus" in capsys.readouterr().err
