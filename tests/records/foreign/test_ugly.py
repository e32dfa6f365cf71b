"""Logs as they are found: torn, half written, with counts that are none."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.records.foreign.claude_code import run_from_claude_code
from pipeline.records.foreign.counts import tokens
from pipeline.records.foreign.run import ForeignRun
from pipeline.records.foreign.times import unix_seconds
from tests.records.foreign.files import words
from tests.records.foreign.logs import Line
from tests.records.foreign.test_claude_code import answer, said, session, text

Change = Callable[[list[Line]], Any]


def raw(lines: list[Line], end: str = "\n") -> bytes:
    return "".join(json.dumps(line) + end for line in lines).encode()


def read(tmp_path: Path, content: bytes) -> ForeignRun:
    path = tmp_path / "s.jsonl"
    path.write_bytes(content)
    return run_from_claude_code(path, words)


def changed(tmp_path: Path, change: Change) -> ForeignRun:
    lines = session()
    change(lines)
    return read(tmp_path, raw(lines))


def usage_is(usage: Any) -> Change:
    def change(lines: list[Line]) -> None:
        for line in lines:
            if line["type"] == "assistant":
                line["message"]["usage"] = usage

    return change


@pytest.mark.parametrize(
    "content",
    [
        raw(session(), "\r\n"),
        b"\xef\xbb\xbf" + raw(session()),
        raw(session()) + b'{"type": "assistant", "uuid": "x", "mess',
        raw(session()) + b'{"uuid": "x", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        raw(session()) + b"\n\n[1, 2]\nnull\n",
    ],
    ids=["windows", "byte order mark", "torn", "nested too deep", "other lines"],
)
def test_the_session_is_read_whatever_stands_around_it(tmp_path: Path, content: bytes) -> None:
    run = read(tmp_path, content)
    assert [c.prompt_tokens for c in run.calls] == [124, 124]
    assert run.task == "Mend the scale."


@pytest.mark.parametrize(("bytes_", "shown"), [(b"\xff\xfe", "\ufffd\ufffd"), (b"\x00", "\x00")])
def test_bytes_that_are_no_text_do_not_cost_their_message(
    tmp_path: Path, bytes_: bytes, shown: str
) -> None:
    """The line was passed over, and with it the task."""
    run = read(tmp_path, raw(session()).replace(b"Mend the", b"Mend " + bytes_ + b" the"))
    assert run.task == f"Mend {shown} the scale."


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [1],
        {"input_tokens": "12", "cache_read_input_tokens": 3},
        {"input_tokens": -5},
        {"input_tokens": float("nan")},
        {"input_tokens": 10**30},
        {"input_tokens": True},
    ],
)
def test_counts_that_are_none_are_unknown(tmp_path: Path, usage: Any) -> None:
    run = changed(tmp_path, usage_is(usage))
    assert [c.prompt_tokens for c in run.calls] == [None, None]


def test_a_usage_of_zeros_says_that_nobody_counted(tmp_path: Path) -> None:
    """Such calls cost nothing, and their prompts had no tokens."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    run = changed(tmp_path, usage_is(dict.fromkeys((*names, "output_tokens"), 0)))
    assert {(c.prompt_tokens, c.cached_tokens, c.cache_write_tokens) for c in run.calls} == {
        (None, None, None)
    }


def test_a_reply_that_the_tool_wrote_itself_is_no_call(tmp_path: Path) -> None:
    """It was billed as one, by the words of an error message."""
    failed = said("e1", "a4", text("API Error: overloaded " * 20), message="msg_e")
    failed["message"] |= {"model": "<synthetic>", "usage": {"input_tokens": 0, "output_tokens": 0}}
    run = read(tmp_path, raw([*session(), failed]))
    assert len(run.calls) == 2
    assert {c.served_model for c in run.calls} == {"m"}
    assert "overloaded" in run.trajectory.messages[-1].content
    assert run.aside == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[2].update(message="hello"),
        lambda lines: lines[2]["message"].update(content=None),
        lambda lines: lines[2]["message"].update(content=5),
        lambda lines: lines[2]["message"].update(content=[{"type": "tool_use"}]),
        lambda lines: lines[6]["message"].update(model=["a"]),
        lambda lines: lines[0].update(parentUuid="a4"),
        lambda lines: [line["message"].pop("id", None) for line in lines],
        lambda lines: [line.pop("timestamp") for line in lines],
    ],
    ids=["no message", "no content", "number", "no id", "model", "circle", "no ids", "no times"],
)
def test_a_field_that_is_not_as_it_should_be_costs_no_call(tmp_path: Path, change: Change) -> None:
    assert [c.prompt_tokens for c in changed(tmp_path, change).calls] == [124, 124]


def test_clocks_that_run_backwards_measure_no_wait(tmp_path: Path) -> None:
    def change(lines: list[Line]) -> None:
        for number, line in enumerate(lines):
            line["timestamp"] = f"2025-12-01T12:{59 - number:02d}:00Z"

    run = changed(tmp_path, change)
    assert {m.waited_s for m in run.trajectory.messages} == {None}


def test_a_line_of_many_megabytes_is_a_line(tmp_path: Path) -> None:
    def change(lines: list[Line]) -> None:
        lines[4]["message"]["content"] = answer("t1", "word " * 4_000_000)

    run = changed(tmp_path, change)
    assert run.trajectory.messages[2].n_tokens == 4_000_000


@pytest.mark.parametrize("value", [1e308, float("inf"), float("nan"), -1, 0, "yesterday", None, []])
def test_a_number_that_is_no_time_is_none(value: Any) -> None:
    assert unix_seconds(value) is None


@pytest.mark.parametrize(("value", "count"), [(7, 7), (7.0, 7), (0, 0), ("7", None), (-1, None)])
def test_a_count_is_a_whole_number_or_unknown(value: Any, count: int | None) -> None:
    assert tokens({"n": value}, "n") == count
