"""Which part of a prompt changed, template rules, and reasoning the template drops.

See docs/methods.md, Cache accounting.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.accounting.cache_cost import Piece
from pipeline.accounting.prompt_pieces import PromptPieces
from pipeline.accounting.template import TemplateRules, keeps_reasoning, rendered_prompt
from pipeline.spec.policies import policy_for
from pipeline.views.policy import AuxReply, AuxRequest
from pipeline.views.shown import ShownTokens
from pipeline.views.trajectory import Edit, Part, Trajectory, merged, view_messages
from tests.context.arms import all_arms, few_arms
from tests.context.counters import WordCounter
from tests.context.scripts import Answers, Round, Script, read
from tests.context.strategies import answers, scripts

ARMS = all_arms()
NAMES = sorted(few_arms())
RULES: list[TemplateRules] = ["keep_reasoning", "drop_after_user", "no_reasoning"]


def texts_of(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


def whole(
    trajectory: Trajectory, edits: dict[tuple[int, Part], Edit], rules: TemplateRules
) -> list[str]:
    return [shown.text for shown in rendered_prompt(view_messages(trajectory, edits), rules)]


class Watched:
    """Drives a policy and checks every prompt against the view rendered from scratch."""

    def __init__(self, rules: TemplateRules) -> None:
        self.rules = rules
        self.tokens = ShownTokens(WordCounter())
        self.pieces = PromptPieces(self.tokens, rules=rules)
        self.prompt: list[Piece] = []
        self.standing: dict[tuple[int, Part], Edit] = {}
        self.touched: set[int] = set()

    def step(self, trajectory: Trajectory, new: list[Edit]) -> None:
        self.standing = merged(self.standing, new)
        self.touched |= {e.message_index for e in new}
        change = self.pieces.update(trajectory, self.standing, self.touched)
        self.touched = set()
        self.prompt = [*self.prompt[: change.kept], *change.pieces]
        assert texts_of(self.prompt) == whole(trajectory, self.standing, self.rules)
        size = self.tokens.of_view(trajectory, self.standing) - change.dropped_tokens
        assert sum(piece.n_tokens for piece in self.prompt) == size

    def aside(self, trajectory: Trajectory, request: AuxRequest) -> None:
        if request.messages is not None:
            return
        change = self.pieces.update_with(trajectory, self.standing, request.edits, self.touched)
        self.touched = set()
        self.prompt = [*self.prompt[: change.kept], *change.pieces]
        laid = merged(self.standing, request.edits)
        assert texts_of(self.prompt) == whole(trajectory, laid, self.rules)


@pytest.mark.parametrize("name", NAMES)
@given(script=scripts, answer=answers(), rules=st.sampled_from(RULES))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_brought_up_to_date_are_the_whole_view_rendered(
    name: str, script: list[Round], answer: Answers, rules: TemplateRules
) -> None:
    book, watched = Script(), Watched(rules)
    policy = policy_for(ARMS[name], seed=0, count_tokens=WordCounter(), context_length=4000)

    def ask(request: AuxRequest) -> AuxReply:
        watched.aside(book.trajectory, request)
        return answer(request)

    for round_ in [None, *script]:
        if round_ is not None:
            book.append(round_)
        watched.step(book.trajectory, list(policy.decide(book.trajectory, watched.standing, ask)))


def test_a_user_message_drops_earlier_reasoning_and_a_tool_result_does_not() -> None:
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "", "reasoning": "thought 1"},
        {"role": "tool", "content": "r"},
        {"role": "assistant", "content": "", "reasoning": "thought 2"},
        {"role": "tool", "content": "r"},
    ]
    kept = rendered_prompt(messages, "drop_after_user")
    assert "thought 1" in kept[2].text
    error = [*messages, {"role": "user", "content": "bad format"}]
    after = rendered_prompt(error, "drop_after_user")
    assert [m.dropped_reasoning for m in after] == [False, False, True, False, True, False, False]
    assert not any(m.dropped_reasoning for m in rendered_prompt(error, "keep_reasoning"))
    assert keeps_reasoning("no_reasoning", 5, 1) is False


def test_dropped_reasoning_is_counted_once_a_message() -> None:
    book = Script()
    pieces = PromptPieces(ShownTokens(WordCounter()), rules="drop_after_user")
    for k in range(3):
        book.append(Round(acts=(read(f"{k}.py"),), reasoning=f"thought number {k}"))
        assert pieces.update(book.trajectory, {}).dropped_tokens == 0
    book.append(Round())
    assert pieces.update(book.trajectory, {}).dropped_tokens == 9
    book.append(Round(acts=(read("4.py"),), reasoning="more"))
    assert pieces.update(book.trajectory, {}).dropped_tokens == 9
    assert pieces.template_dropped_tokens == 9


def test_a_cut_keeps_what_is_before_it() -> None:
    book = Script()
    pieces = PromptPieces(ShownTokens(WordCounter()), tools="bash planctl")
    for k in range(4):
        book.append(Round(acts=(read(f"{k}.py"),)))
    first = pieces.update(book.trajectory, {})
    assert (first.kept, len(first.pieces)) == (0, 11)
    gone = Edit(message_index=5, part=Part.CONTENT, text="gone", reason="prune")
    change = pieces.update(book.trajectory, merged({}, [gone]), [5])
    assert (change.kept, len(change.pieces)) == (6, 5)
