"""How the simulated agent uses the tools of some arms: recalling, and pruning when reminded."""

import json

import pytest

from pipeline.agent.bash_tool import with_focus
from pipeline.arms.dcp_compress import nudge as compress_nudge
from pipeline.arms.discard_anytime import nudge
from pipeline.serving.sim.brain import Question, answer
from pipeline.serving.sim.recipe import RecipeBook, load_recipes
from pipeline.serving.sim.sight import read_of, recall_of
from pipeline.serving.sim.speech import Reply
from pipeline.serving.sim.view import COMPRESS_NUDGE, NUDGE, view_of
from pipeline.views.focus import FOCUS_ARGUMENT
from tests.serving.sim_world import (
    BASH_TOOL,
    PLACEHOLDER,
    PRUNE_TOOL,
    TASK,
    TEXT_SYSTEM,
    write_recipes,
)

RECALL_TOOL = {
    "type": "function",
    "function": {"name": "recall", "parameters": {"type": "object", "properties": {}}},
}
GONE = f"{PLACEHOLDER} recall(id=3) shows it again."
EDIT = "python3 - <<'EDIT'\n# plan step 3: Repair average\nwrite_text stats.py\nEDIT"
READY = "Now the change. [step 3/4, look 2, edit 0, check 0, turn 9]"
"""The mark of an agent that has looked enough and edits next."""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> RecipeBook:
    return load_recipes(write_recipes(tmp_path_factory.mktemp("recipes")))


def history(*turns: tuple[str, str], text_mode: bool = False, said: str = READY) -> list[dict]:
    """Return a history of (command, output as shown)."""
    system = TEXT_SYSTEM if text_mode else "x"
    messages: list[dict] = [
        {"role": "system", "content": system},
        {"role": "user", "content": TASK},
    ]
    for n, (command, shown) in enumerate(turns):
        if text_mode:
            block = f"{said}\n```mswea_bash_command\n{command}\n```"
            messages += [
                {"role": "assistant", "content": block},
                {"role": "user", "content": shown},
            ]
            continue
        name, arguments = "bash", {"command": command}
        if command.startswith("recall "):
            name, arguments = "recall", {"id": int(command.split()[1])}
        call = {"name": name, "arguments": json.dumps(arguments)}
        messages += [
            {
                "role": "assistant",
                "content": said,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": shown},
        ]
    return messages


def replies(book: RecipeBook, messages: list[dict], *tools: dict, n: int = 40) -> list[Reply]:
    return [
        answer(Question(messages=messages, tools=tools, seed=seed, extra={}), book)
        for seed in range(n)
    ]


def acts(replies: list[Reply], tool: str) -> list[dict]:
    return [dict(a.arguments) for reply in replies for a in reply.acts if a.tool == tool]


def test_a_pruned_output_that_is_needed_is_mostly_recalled(book: RecipeBook):
    given = replies(book, history(("cat stats.py", GONE)), BASH_TOOL, RECALL_TOOL)
    recalled = acts(given, "recall")
    assert len(recalled) > 15
    assert all(arguments == {"id": 3} for arguments in recalled)


def test_without_the_tool_nothing_is_recalled(book: RecipeBook):
    assert acts(replies(book, history(("cat stats.py", GONE)), BASH_TOOL), "recall") == []


def test_what_was_edited_since_is_read_again_instead(book: RecipeBook):
    messages = history(("cat stats.py", GONE), (EDIT, "<output>\ndone\n</output>"))
    (need,) = next(s.needs for s in book.find(TASK).steps if s.title == "Repair average")
    assert recall_of(view_of(messages[:4]).actions, need) == 3
    assert recall_of(view_of(messages).actions, need) is None


def test_a_recalled_output_counts_as_seen_where_it_first_stood():
    whole = "<returncode>0</returncode>\n<output>\nline\nline\n</output>"
    first, again = view_of(history(("cat stats.py", GONE), ("recall 3", whole))).actions
    assert first.output == again.output == "line\nline"
    assert first.recall_id is None


def test_in_text_mode_a_recall_is_a_line(book: RecipeBook):
    gone = f"{PLACEHOLDER} `recall 3` shows it again."
    messages = history(("cat stats.py", gone), text_mode=True)
    written = [reply.content for reply in replies(book, messages)]
    assert any("```mswea_bash_command\nrecall 3\n```" in text for text in written)
    (asked,) = view_of(history(("recall 3", "x = 1"), text_mode=True)).actions
    assert (asked.tool, asked.arguments) == ("recall", {"id": 3})


def numbered(number: int, text: str = "words", *, reminder: bool = False) -> str:
    body = f"[output {number}]\n<returncode>0</returncode>\n<output>\n{text}\n</output>"
    return f"{body}\n[There are 10 tool results by now. {NUDGE}.]" if reminder else body


@pytest.mark.parametrize("reminder", [True, False])
def test_reminded_it_prunes_in_an_ordinary_turn_and_goes_on(book: RecipeBook, reminder: bool):
    turns = [("ls", numbered(1)), ("ls -la", numbered(2)), ("git log", numbered(3))]
    turns.append(("git status", numbered(4, reminder=reminder)))
    given = replies(book, history(*turns), BASH_TOOL, PRUNE_TOOL)
    pruned = acts(given, "prune_observations")
    assert (len(pruned) > 25) is reminder
    assert all(set(arguments["ids"]) <= {1, 2, 3} for arguments in pruned)
    assert all(any(a.tool != "prune_observations" for a in reply.acts) for reply in given)


def test_the_reminder_is_the_one_that_the_arm_gives():
    assert NUDGE in nudge(10)
    for urges in (False, True):
        assert COMPRESS_NUDGE in compress_nudge(60_000, urges=urges)


@pytest.mark.parametrize("text_mode", [False, True])
def test_told_that_it_may_it_compresses_all_but_the_newest_outputs(
    book: RecipeBook, text_mode: bool
):
    turns = [(f"ls {k}", numbered(k)) for k in range(1, 7)]
    turns.append(("ls", f"{numbered(7)}\n{compress_nudge(60_000, urges=False)}"))
    if text_mode:
        written = replies(book, history(*turns, text_mode=True))[0].content
        assert "```mswea_bash_command\ncompress 1 4 " in written
        return
    for reply in replies(book, history(*turns), BASH_TOOL):
        (asked,) = acts([reply], "compress")
        assert (asked["first"], asked["last"]) == (1, 4)
        assert "[step " in asked["summary"], "the work can go on from it"
        assert len(reply.acts) > 1
    assert not acts(replies(book, history(*turns[:-1]), BASH_TOOL), "compress")


# --- the question for a line pruner --------------------------------------------------------------
def test_reading_commands_carry_a_question_where_the_tool_takes_one(book: RecipeBook):
    messages = history(("cat stats.py", GONE))
    asked = acts(replies(book, messages, dict(with_focus(BASH_TOOL))), "bash")
    reads = [a for a in asked if read_of(a["command"]) is not None]
    assert len(reads) > 15
    assert all(a[FOCUS_ARGUMENT].endswith("?") for a in reads)
    assert not any(FOCUS_ARGUMENT in a for a in asked if a not in reads)
    assert not any(FOCUS_ARGUMENT in a for a in acts(replies(book, messages, BASH_TOOL), "bash"))
