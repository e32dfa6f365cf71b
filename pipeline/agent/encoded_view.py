"""The view as bytes: each message is turned into JSON once, and again only when it is edited.

Owns the standing edits, the encoded messages, and the count of the tokens they show, so that a
call costs a join and no walk over the history. Does not decide any edit.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.views.policy import TokenCounter
from pipeline.views.trajectory import Edit, Edits, Message, Part, Trajectory, chat_message, merged


def encoded(value: Any) -> bytes:
    """Return `value` as compact JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class EncodedView:
    """A trajectory with the edits in force, ready to be sent."""

    def __init__(self, counter: TokenCounter) -> None:
        self.trajectory = Trajectory()
        self.standing: dict[tuple[int, Part], Edit] = {}
        self.shown_tokens = 0
        """Offline count of what the view shows, chat template aside."""
        self._counter = counter
        self._messages: list[bytes | None] = []
        self._inserted: dict[int, bytes] = {}

    def append(self, message: Message) -> None:
        """Add the trajectory's next message."""
        self.trajectory.append([message])
        self._messages.append(_encoded_message(message, self.standing))
        self.shown_tokens += message.n_tokens + message.reasoning_tokens

    def apply(self, edits: Iterable[Edit]) -> None:
        """Put edits in force; an edit of a part that has one replaces it.

        Raises:
            ValueError: an edit of a message that does not exist.
        """
        touched: set[int] = set()
        for edit in edits:
            self._check(edit)
            key = (edit.message_index, edit.part)
            self.shown_tokens += self._gain(edit, self.standing)
            self.standing[key] = edit
            if edit.part is Part.INSERTED:
                _insert(edit, self._inserted)
            else:
                touched.add(edit.message_index)
        for index in touched:
            encoded_now = _encoded_message(self.trajectory.messages[index], self.standing)
            self._messages[index] = encoded_now

    def sent(self, transient: Sequence[Edit] = ()) -> list[bytes]:
        """Return the encoded messages of the view, with `transient` laid over it for this once.

        Raises:
            ValueError: an edit of a message that does not exist.
        """
        messages = list(self._messages)
        inserted = self._inserted
        if transient:
            laid = merged(self.standing, transient)
            inserted = dict(inserted)
            for edit in transient:
                self._check(edit)
                if edit.part is Part.INSERTED:
                    _insert(edit, inserted)
                else:
                    index = edit.message_index
                    messages[index] = _encoded_message(self.trajectory.messages[index], laid)
        if not inserted:
            return [m for m in messages if m is not None]
        woven: list[bytes] = []
        for index, message in enumerate(messages):
            if index in inserted:
                woven.append(inserted[index])
            if message is not None:
                woven.append(message)
        if len(messages) in inserted:
            woven.append(inserted[len(messages)])
        return woven

    def tokens_with(self, transient: Sequence[Edit]) -> int:
        """Return the offline token count of the view with `transient` laid over it."""
        return self.shown_tokens + sum(self._gain(edit, self.standing) for edit in transient)

    def _check(self, edit: Edit) -> None:
        last = len(self.trajectory.messages) - (edit.part is not Part.INSERTED)
        if not 0 <= edit.message_index <= last:
            raise ValueError(
                f"edit {edit.reason!r} of message {edit.message_index}, but the trajectory has "
                f"{len(self.trajectory.messages)}"
            )

    def _gain(self, edit: Edit, edits: Edits) -> int:
        # An estimate that sizes `max_tokens`; dropped messages that are edited again are rare.
        after = self._count(edit.text)
        old = edits.get((edit.message_index, edit.part))
        if old is not None:
            return after - self._count(old.text)
        if edit.part is Part.INSERTED:
            return after
        return after - self._part_tokens(self.trajectory.messages[edit.message_index], edit.part)

    def _part_tokens(self, message: Message, part: Part) -> int:
        if part is Part.REASONING:
            return message.reasoning_tokens
        if part is Part.DROPPED:
            return message.n_tokens + message.reasoning_tokens
        calls = sum(self._count(call.arguments) for call in message.tool_calls)
        return calls if part is Part.TOOL_CALLS else message.n_tokens - calls

    def _count(self, text: str) -> int:
        return self._counter.count(text) if text else 0


def _encoded_message(message: Message, edits: Edits) -> bytes | None:
    chat = chat_message(message, edits)
    return None if chat is None else encoded(chat)


def _insert(edit: Edit, inserted: dict[int, bytes]) -> None:
    if edit.text:
        inserted[edit.message_index] = encoded({"role": "user", "content": edit.text})
    else:
        inserted.pop(edit.message_index, None)
