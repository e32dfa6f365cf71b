"""The page: everything in one file, nothing fetched, nothing private."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.replay import main
from pipeline.replaying.replay import ReplaySettings
from pipeline.sessions.facts import SessionFacts
from pipeline.sessions.jobs import Job, replayed
from pipeline.sessions.page import MAX_SESSIONS, Dearest
from tests.context.arms import arm
from tests.context.test_money import PRICING
from tests.records.foreign.logs import Line, write_lines
from tests.records.foreign.test_claude_code import answer, said, text, use, user

KEY = "sk-ant-" + "a1B2" * 8


def long_session(n_turns: int = 6) -> list[Line]:
    """Turns of one command each in somebody's home; the last answer comes after a night."""
    lines = [user("u0", None, "Mend <b>the</b> scale.")]
    parent, held, written = "u0", 0, 1000
    for k in range(n_turns + 1):
        block = text("Done.") if k == n_turns else use(f"t{k}", f"cat /home/alice/f{k}.py # {KEY}")
        reply = said(f"a{k}", parent, block, message=f"msg_{k}")
        night = k == n_turns
        reply["message"]["usage"] = {
            "input_tokens": 4,
            "cache_read_input_tokens": 0 if night else held,
            "cache_creation_input_tokens": written + (held if night else 0),
            "output_tokens": 60,
        }
        reply["timestamp"] = stamp(k, n_turns)
        lines.append(reply)
        if not night:
            result = user(f"r{k}", f"a{k}", answer(f"t{k}", f"line of f{k}\n" * 200))
            lines.append({**result, "timestamp": stamp(k + 1, n_turns)})
        parent, held, written = f"r{k}", held + written, 700
    return lines


def stamp(turn: int, last: int) -> str:
    return f"2025-12-01T{20 if turn == last else 12}:{turn:02d}:00.000Z"


class Page(HTMLParser):
    """Collects what a browser would fetch and every tag that is left open."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href") and v]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href") and v]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(tmp_path: Path, *more: str) -> tuple[str, Page]:
    log = write_lines(tmp_path / "s.jsonl", long_session())
    out = tmp_path / "page.html"
    arms = ["--arms", "observation_mask[keep_last_turns=1]"]
    assert main([str(log), "--pricing", "anthropic", *arms, "--html", str(out), *more]) == 0
    content = out.read_text()
    return content, Page(content)


def test_the_page_is_whole_and_fetches_nothing(tmp_path: Path) -> None:
    content, page = page_of(tmp_path)
    assert page.open == []
    assert page.fetched == []
    assert "url(" not in content
    assert "<script" not in content


def test_the_page_begins_with_the_answer_and_shows_what_made_the_session_dear(
    tmp_path: Path,
) -> None:
    _, page = page_of(tmp_path)
    assert "1 session with 7 calls (2025-12-01) cost USD" in page.text
    assert "Where the cache broke" in page.text
    assert "idle beyond the time to live" in page.text
    assert "Bash: cat ~/f0.py # [key]" in page.text
    assert "observation_mask[keep_last_turns=1] would have made 5 edits" in page.text


def test_keys_home_folders_and_markup_of_a_session_are_not_on_the_page(tmp_path: Path) -> None:
    content, _ = page_of(tmp_path)
    assert KEY not in content
    assert "alice" not in content
    assert "<b>" not in content


def test_without_texts_no_command_and_no_word_of_the_task_is_on_the_page(tmp_path: Path) -> None:
    content, page = page_of(tmp_path, "--no-text")
    assert "cat " not in content
    assert "mend" not in content.lower()
    assert re.search(r"task-[0-9a-f]{8}", content)
    assert "Largest outputs" in page.text


def facts_of(tmp_path: Path, lines: list[Line]) -> SessionFacts:
    job = Job(
        source=write_lines(tmp_path / "s.jsonl", lines),
        reference=arm("full_history"),
        arms=(arm("full_history"), arm("observation_mask", keep_last_turns=1)),
        settings=ReplaySettings(),
        pricing=PRICING,
        prices="claude_sonnet_5m",
        counter="chars/3.6",
        by_call=False,
        page=True,
    )
    (facts,) = replayed(job).facts
    return facts


def test_costs_grow_call_by_call_to_what_the_session_cost(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, long_session())
    assert facts.by_arm["recorded"][-1] == pytest.approx(facts.cost.cost)
    for costs in facts.by_arm.values():
        assert len(costs) == 7
        assert all(a < b for a, b in pairwise(costs))


def test_an_output_is_counted_in_every_prompt_that_held_it(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, long_session())
    assert sorted((o.call, o.n_sent) for o in facts.outputs) == [(k + 2, 6 - k) for k in range(6)]


def test_a_dropped_output_leaves_what_stands_in_its_place(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, long_session())
    (dropped,) = facts.dropped
    sizes = {o.what: o.tokens for o in facts.outputs}
    assert dropped.n_edits == 5
    assert dropped.tokens == sum(o.tokens for o in dropped.largest)
    assert all(0 < o.tokens < sizes[o.what] for o in dropped.largest)


def test_only_the_dearest_sessions_have_a_section(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, long_session())
    kept = Dearest()
    kept.take(replace(facts, replayed_cost=float(k)) for k in range(100))
    assert [one.replayed_cost for one in kept.sessions] == [99.0 - k for k in range(MAX_SESSIONS)]
    assert kept.n_seen == 100


def test_a_page_and_json_are_not_written_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--json", "--html", str(tmp_path / "x.html")]) == 2
    assert "leave --json out" in capsys.readouterr().err
