"""The pieces of a run's prompts, updated call by call.

`CacheAccount` needs the place from which on a prompt differs from the previous one: the first
message whose edits changed or, where the chat template drops reasoning after a user message, the
first turn that lost it. What did not change is not rendered again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.accounting.cache_cost import Piece
from pipeline.accounting.template import TemplateRules, rendered
from pipeline.views.shown import ShownTokens
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, chat_message, merged

PlainPieces = dict[tuple[int, bool], Piece]
"""Pieces of unedited messages, by index and whether their reasoning is rendered."""


_MESSAGE_PARTS = (Part.CONTENT, Part.REASONING, Part.TOOL_CALLS, Part.DROPPED)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptChange:
    """A prompt as its difference from the previous one."""

    kept: int
    """Leading pieces that are those of the previous prompt."""
    pieces: list[Piece]
    """The prompt's other pieces."""
    dropped_tokens: int
    """Reasoning that the view has and the template leaves out of this prompt."""


class PromptPieces:
    """The pieces of the last prompt of one run."""

    def __init__(
        self,
        tokens: ShownTokens,
        *,
        rules: TemplateRules = "keep_reasoning",
        tools: str = "",
        plain: PlainPieces | None = None,
    ) -> None:
        """Start with no prompt; `plain` may be shared by all views of one trajectory."""
        self._plain: PlainPieces = {} if plain is None else plain
        self._tokens = tokens
        self._rules = rules
        self._pieces = [Piece(text=tools, n_tokens=tokens.of_text(tools))] if tools else []
        self._starts = [len(self._pieces)]
        """Pieces before each message of the trajectory, and before its end."""
        self._known: dict[int, tuple[bool, Piece]] = {}
        self._last_user = -1.0
        self._user_messages: list[int] = []
        self._stale: set[int] = set()
        self._first = True
        self._dropped: dict[int, int] = {}
        self._ever_dropped: set[int] = set()
        self.template_dropped_tokens = 0
        """Reasoning tokens the template has left out so far, each message counted once."""

    def update(
        self, trajectory: Trajectory, edits: Edits, touched: Iterable[int] = ()
    ) -> PromptChange:
        """Return the prompt of the current view.

        Args:
            trajectory: the run so far.
            edits: all edits in force.
            touched: indexes of the messages whose edits changed since the last prompt.
        """
        changed = set(touched) | self._stale
        self._stale = set()
        return self._render(trajectory, edits, changed)

    def update_with(
        self,
        trajectory: Trajectory,
        edits: Edits,
        transient: Iterable[Edit],
        touched: Iterable[int] = (),
    ) -> PromptChange:
        """Return the prompt of a call with edits of its own, which end with that call."""
        own = list(transient)
        changed = set(touched) | self._stale | {e.message_index for e in own}
        change = self._render(trajectory, merged(edits, own), changed)
        self._stale = {e.message_index for e in own}
        return change

    def _render(self, trajectory: Trajectory, edits: Edits, changed: set[int]) -> PromptChange:
        seen = len(self._starts) - 1
        first = min([seen, *changed])
        if self._rules == "drop_after_user":
            last_user = self._newest_user(trajectory, edits, seen)
            if last_user != self._last_user:
                first = min(first, int(max(min(last_user, self._last_user), -1.0)) + 1)
            self._last_user = last_user
        for index in changed:
            self._known.pop(index, None)
        kept = 0 if self._first else self._starts[first]
        self._first = False
        del self._pieces[self._starts[first] :], self._starts[first + 1 :]
        for message in trajectory.messages[first:]:
            self._insert(message.index, edits)
            self._show(message, edits)
            self._starts.append(len(self._pieces))
        self._insert(len(trajectory.messages), edits)
        return PromptChange(
            kept=kept,
            pieces=self._pieces[kept:],
            dropped_tokens=sum(self._dropped.values()),
        )

    def _insert(self, index: int, edits: Edits) -> None:
        inserted = edits.get((index, Part.INSERTED))
        if inserted is not None and inserted.text:
            shown = rendered({"role": "user", "content": inserted.text}, reasoning=True)
            self._pieces.append(
                Piece(text=shown.text, n_tokens=self._tokens.of_text(inserted.text))
            )

    def _show(self, message: Message, edits: Edits) -> None:
        reasoning = self._rules == "keep_reasoning" or (
            self._rules == "drop_after_user" and message.index > self._last_user
        )
        known = self._known.get(message.index)
        if known is None or known[0] != reasoning:
            piece = self._piece(message, edits, reasoning=reasoning)
            if piece is None:
                return
            known = self._known[message.index] = (reasoning, piece)
        self._pieces.append(known[1])

    def rendered_answer(self, message: Message) -> str:
        """Return an assistant message as the next prompt would render it if nothing edits it."""
        return self._plain_piece(message, reasoning=self._rules != "no_reasoning").text

    def _piece(self, message: Message, edits: Edits, *, reasoning: bool) -> Piece | None:
        self._dropped.pop(message.index, None)
        index = message.index
        if not any((index, part) in edits for part in _MESSAGE_PARTS):
            if message.reasoning and not reasoning:
                self._note_dropped(message, message.reasoning_tokens)
            return self._plain_piece(message, reasoning=reasoning)
        chat = chat_message(message, edits)
        if chat is None:
            return None
        shown = rendered(chat, reasoning=reasoning)
        n_tokens = self._tokens.of_message(message, edits)
        if shown.dropped_reasoning:
            edit = edits.get((index, Part.REASONING))
            lost = message.reasoning_tokens if edit is None else self._tokens.of_text(edit.text)
            self._note_dropped(message, lost)
            n_tokens -= lost
        return Piece(text=shown.text, n_tokens=n_tokens, origin=index)

    def _plain_piece(self, message: Message, *, reasoning: bool) -> Piece:
        piece = self._plain.get((message.index, reasoning))
        if piece is None:
            chat = chat_message(message, {})
            shown = rendered(chat or {}, reasoning=reasoning)
            n_tokens = message.n_tokens + (message.reasoning_tokens if reasoning else 0)
            piece = Piece(text=shown.text, n_tokens=n_tokens, origin=message.index)
            self._plain[message.index, reasoning] = piece
        return piece

    def _note_dropped(self, message: Message, lost: int) -> None:
        if message.index not in self._ever_dropped:
            self._ever_dropped.add(message.index)
            self.template_dropped_tokens += lost
        self._dropped[message.index] = lost

    def _newest_user(self, trajectory: Trajectory, edits: Edits, seen: int) -> float:
        """Return the place of the newest user message; an inserted one is half before its index."""
        inserted = max(
            (i - 0.5 for (i, part), e in edits.items() if part is Part.INSERTED and e.text),
            default=-1.0,
        )
        for message in trajectory.messages[seen:]:
            if message.role == "user":
                self._user_messages.append(message.index)
        while self._user_messages and (self._user_messages[-1], Part.DROPPED) in edits:
            self._user_messages.pop()
        return max(inserted, float(self._user_messages[-1]) if self._user_messages else -1.0)
