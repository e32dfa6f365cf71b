"""The common prefix of a run's prompts on token ids, against comparing all with all."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pipeline.protocols import ChatReply, ChatRequest
from pipeline.worker.id_prefixes import IdPrefixes

REQUEST = ChatRequest(messages=[], seed=0, max_tokens=1, cache_salt="")
ids = st.lists(st.integers(0, 2), max_size=8)


class Answers:
    """Answers from a list of prompt and completion ids."""

    def __init__(self, script: Sequence[tuple[list[int] | None, list[int]]]) -> None:
        self._script = iter(script)

    def complete(self, request: ChatRequest) -> ChatReply:  # noqa: ARG002
        prompt, completion = next(self._script)
        return ChatReply(
            content="",
            finish_reason="stop",
            prompt_tokens=len(prompt or ()),
            completion_tokens=len(completion),
            prompt_token_ids=prompt,
            completion_token_ids=completion,
            latency_s=0.0,
            started_at=0.0,
        )


def prefixes_of(script: Sequence[tuple[list[int] | None, list[int]]]) -> list[int | None]:
    noted = IdPrefixes(Answers(script))
    for _ in script:
        noted.complete(REQUEST)
    return noted.lcp_tokens


def agreed(a: list[int], b: list[int]) -> int:
    return next(
        (n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(map(len, (a, b)))
    )


@given(st.lists(st.tuples(ids, ids), max_size=10))
def test_it_is_the_longest_prefix_shared_with_any_earlier_prompt_and_its_answer(
    script: list[tuple[list[int], list[int]]],
):
    sent: list[list[int]] = []
    expected = []
    for prompt, completion in script:
        longest = max((agreed(prompt, earlier) for earlier in sent), default=0)
        expected.append(min(longest, max(len(prompt) - 1, 0)))
        sent.append(prompt + completion)
    assert prefixes_of(script) == expected


def test_after_an_answer_without_ids_nothing_is_claimed():
    assert prefixes_of([([1, 2], []), (None, []), ([1, 2], [])]) == [0, None, None]
