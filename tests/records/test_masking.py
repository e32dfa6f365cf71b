"""What is written out holds no key and no home folder, and code stays code."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given

from pipeline import export as export_door
from pipeline import ingest as ingest_door
from pipeline.records.atif_export import atif_from_record
from pipeline.records.masking import masked
from pipeline.records.mini_export import mini_from_record
from pipeline.records.run_record import RunRecord
from pipeline.records.wordless import without_texts
from tests.records.foreign.logs import write_lines
from tests.records.foreign.test_claude_code import answer, said, text, use, user
from tests.records.samples import bounded, drawn_runs

# Put together at run time, so that no scanner takes them for real ones.
FAKE = "a1B2" * 10


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-" + FAKE,
        "sk-" + FAKE,
        "ghp_" + FAKE,
        "hf_" + FAKE,
        "AKIA" + "A1B2" * 4,
        "xoxb-" + FAKE,
        "-----BEGIN RSA PRIVATE KEY-----\n" + FAKE + "\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_keys_of_known_shape_are_masked_wherever_they_stand(key: str) -> None:
    assert masked(f"export X='{key}' && run") == "export X='[key]' && run"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("OPENAI_API_KEY=abcdefgh1234", "OPENAI_API_KEY=[key]"),
        ("-H 'Authorization: Bearer abcdefgh1234'", "-H 'Authorization: Bearer [key]'"),
        ("x-api-key: abcdefgh1234", "x-api-key: [key]"),
        ("DB_PASSWORD = 'hunter2hunter2'", "DB_PASSWORD = '[key]'"),
    ],
)
def test_values_that_are_named_as_keys_are_masked(written: str, shown: str) -> None:
    assert masked(written) == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("cat /home/alice/src/a.py", "cat ~/src/a.py"),
        ("/Users/alice.b/x: not found", "~/x: not found"),
        ("C:\\Users\\Alice\\x", "~\\x"),
        ("projects/-Users-alice-shop/s.jsonl", "projects/-~-shop/s.jsonl"),
        ('{"cwd": "/home/alice"}', '{"cwd": "~"}'),
    ],
)
def test_home_folders_are_masked(written: str, shown: str) -> None:
    assert masked(written) == shown


@pytest.mark.parametrize(
    "code",
    [
        "token = tokens[index]",
        "API_KEY = os.environ['API_KEY']",
        "def test_key(): return sk - 1",
        "KEY=${KEY}",
        "git log --no-home-page",
        "the task-management of users/home",
    ],
)
def test_code_stays_code(code: str) -> None:
    assert masked(code) == code


def private_session(tmp_path: Path) -> Path:
    """A session that prints a key, in somebody's home folder."""
    key = "sk-ant-" + FAKE
    lines = [
        user("u1", None, "Why does /home/alice/shop fail?"),
        said("a1", "u1", use("t1", f"KEY={key} /home/alice/shop/run"), out=40),
        user("u2", "a1", answer("t1", f"denied: {key}")),
        said("a2", "u2", text("It is the key of alice-in-wonderland."), message="msg_2"),
    ]
    return write_lines(tmp_path / "in" / "s.jsonl", lines)


def ingested(tmp_path: Path) -> Path:
    private_session(tmp_path)
    out = tmp_path / "out"
    argv = [str(tmp_path / "in"), "--out", str(out), "--token-counter", "chars/3.6"]
    assert ingest_door.main(argv) == 0
    return out


def test_tables_and_exports_of_a_session_hold_no_key_and_no_home(tmp_path: Path) -> None:
    out = ingested(tmp_path)
    (messages,) = (out / "tables/messages").glob("*.parquet")
    contents = [row["content"] for row in pq.read_table(messages).to_pylist()]
    assert contents[0] == "Why does ~/shop fail?"
    assert contents[2] == "denied: [key]"
    for form in ("traj", "atif"):
        assert export_door.main([str(out), "--format", form]) == 0
        (path,) = (out / "export" / form).rglob("*.json")
        assert FAKE not in path.read_text()
        assert "/home/alice" not in path.read_text()


@pytest.mark.parametrize("form", ["traj", "atif"])
def test_an_export_without_texts_keeps_sizes_and_tools(tmp_path: Path, form: str) -> None:
    out = ingested(tmp_path)
    assert export_door.main([str(out), "--format", form, "--no-text"]) == 0
    (path,) = (out / "export" / form).rglob("*.json")
    written = path.read_text()
    assert not any(word in written for word in ("denied", "wonderland", "shop", "why_does"))
    assert "Bash" in written
    assert '"prompt_tokens": 124' in written


def test_other_forms_cannot_be_without_texts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export_door.main([str(ingested(tmp_path)), "--format", "hf", "--no-text"]) == 2
    assert "--no-text is for traj and atif" in capsys.readouterr().err


@bounded
@given(run=drawn_runs())
def test_nothing_that_anybody_wrote_is_left_without_texts(run: RunRecord) -> None:
    bare = without_texts(run)
    texts = {m.content for m in run.messages} | {m.reasoning or "" for m in run.messages}
    texts |= {edit.text for call in run.calls for edit in call.edits}
    files = json.dumps([atif_from_record(bare), mini_from_record(bare)], ensure_ascii=False)
    assert not [text for text in texts if len(text) > 20 and json.dumps(text)[1:-1] in files]
    assert [m.n_tokens for m in bare.messages] == [m.n_tokens for m in run.messages]
