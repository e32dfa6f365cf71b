"""What of every prompt a perfect prefix cache would have had, put into a finished run's calls.

Owns joining a run's record, as the agent leaves it, with the accounting of
`pipeline.accounting.cache_cost` (docs/methods.md, Cache accounting); what the server itself
reported stands beside it, untouched. Done once, when a run has ended, and linear in its tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.accounting.cache_cost import CacheAccount, CallCache, Piece
from pipeline.accounting.prompt_pieces import PromptPieces
from pipeline.accounting.template import TemplateRules, rendered_prompt
from pipeline.records.run_record import CallRecord
from pipeline.spec.model import ModelSpec
from pipeline.views.policy import TokenCounter
from pipeline.views.shown import ShownTokens
from pipeline.views.trajectory import Edit, Message, Part, Trajectory, merged


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCache:
    """What decides how a server's prefix cache sees a prompt."""

    rules: TemplateRules = "keep_reasoning"
    block_tokens: int | None = None
    """None: unknown."""
    state_interval_tokens: int = 0
    """Of a hybrid model's states; see `CacheAccount`."""

    @classmethod
    def of(cls, model: ModelSpec) -> "ServerCache":
        """Return what a model's config says of it."""
        if model.kind == "sim":
            block = model.sim.block_size if model.sim else None
            return cls(rules=model.template_rules, block_tokens=block)
        return cls(
            rules=model.template_rules,
            block_tokens=model.serve.block_size,
            state_interval_tokens=model.serve.state_interval_tokens or 0,
        )


def with_cache_account(
    calls: Sequence[CallRecord],
    messages: Sequence[Message],
    tools: Mapping[str, str],
    *,
    cache: ServerCache,
    counter: TokenCounter,
    id_prefixes: Sequence[int | None] = (),
) -> tuple[CallRecord, ...]:
    """Return the calls with `lcp_tokens` and its siblings filled in.

    A call without an answer was not billed and keeps None; its edits stay in force all the same.

    Args:
        calls: of one run, in order.
        messages: of the run's trajectory.
        tools: the tool lists that the calls name by hash.
        cache: the server's.
        counter: the one that counted the messages.
        id_prefixes: of every answered call, the prefix on token ids where it is known.
    """
    account = _RunAccount(messages, tools, cache, counter)
    charged = tuple(account.charged(call) for call in calls)
    answered = [place for place, call in enumerate(calls) if call.prompt_tokens is not None]
    if len(answered) != len(id_prefixes):
        return charged
    exact = dict(zip(answered, id_prefixes, strict=True))
    block = cache.block_tokens
    return tuple(_on_ids(call, exact.get(place), block) for place, call in enumerate(charged))


def _on_ids(call: CallRecord, lcp: int | None, block: int | None) -> CallRecord:
    """Return the call with its prefix as the token ids have it, and the rest divided anew."""
    if lcp is None or call.prompt_tokens is None:
        return call
    rest = call.prompt_tokens - lcp
    rebilled = min(call.rebilled_tokens or 0, rest)
    return replace(
        call,
        lcp_tokens=lcp,
        lcp_exact=True,
        lcp_block_tokens=None if block is None else lcp - lcp % block,
        new_tokens=rest - rebilled,
        rebilled_tokens=rebilled,
        spliced_tokens=max(lcp, call.spliced_tokens or 0),
    )


class _RunAccount:
    """The account of one run, fed call by call."""

    def __init__(
        self,
        messages: Sequence[Message],
        tools: Mapping[str, str],
        cache: ServerCache,
        counter: TokenCounter,
    ) -> None:
        self._messages = messages
        self._rules = cache.rules
        self._tokens = ShownTokens(counter)
        # Rendered once, into the prefix of every prompt: the list is the same throughout a run.
        fixed = next(iter(tools.values()), "")
        self._pieces = PromptPieces(self._tokens, rules=self._rules, tools=fixed)
        self._account = CacheAccount(
            counter,
            block_tokens=cache.block_tokens,
            state_interval_tokens=cache.state_interval_tokens,
        )
        self._seen = Trajectory()
        self._standing: dict[tuple[int, Part], Edit] = {}
        self._touched: set[int] = set()

    def charged(self, call: CallRecord) -> CallRecord:
        self._seen.append(self._messages[len(self._seen.messages) : call.message_count])
        self._standing = merged(self._standing, call.edits)
        self._touched |= {edit.message_index for edit in call.edits}
        if call.prompt_tokens is None:
            return call
        cache = self._of_view(call) if call.messages is None else self._aside(call)
        return replace(
            call,
            lcp_tokens=cache.lcp_tokens,
            lcp_exact=False,
            lcp_block_tokens=cache.lcp_block_tokens,
            lcp_state_tokens=cache.lcp_state_tokens,
            spliced_tokens=cache.spliced_tokens,
            new_tokens=cache.new_tokens,
            rebilled_tokens=cache.rebilled_tokens,
        )

    def _of_view(self, call: CallRecord) -> CallCache:
        change = self._pieces.update_with(self._seen, self._standing, call.transient, self._touched)
        self._touched = set()
        return self._account.charge(
            change.pieces,
            kept=change.kept,
            prompt_tokens=call.prompt_tokens,
            completion=self._answer_to(call),
            answer=call.message_count,
            completion_tokens=self._rendered_tokens(call),
        )

    def _aside(self, call: CallRecord) -> CallCache:
        asked = list(call.messages or ())
        pieces = [
            Piece(text=shown.text, n_tokens=self._tokens.of_text(str(message.get("content") or "")))
            for shown, message in zip(rendered_prompt(asked, self._rules), asked, strict=True)
        ]
        return self._account.charge(pieces, prompt_tokens=call.prompt_tokens, aside=True)

    def _rendered_tokens(self, call: CallRecord) -> int | None:
        """Return the completion tokens that the next prompt shows, as the server counted them."""
        if call.completion_tokens is None:
            return None
        dropped = call.reasoning_tokens or 0 if self._rules == "no_reasoning" else 0
        return call.completion_tokens - dropped

    def _answer_to(self, call: CallRecord) -> str:
        """Return the answer as the next prompt renders it, where it entered the trajectory."""
        place = call.message_count
        if call.kind == "step" and place < len(self._messages):
            answer = self._messages[place]
            if answer.role == "assistant":
                return self._pieces.rendered_answer(answer)
        return ""
