"""The prompt in which a backbone saw an output, as text, and where the output is in it.

Rendered by the model's own chat template, up to and including the output. A prompt that is too
long loses its oldest turns, half a window at once, so that neighbouring outputs still share a
prefix. Knows tokenizers only as objects with `apply_chat_template`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.views.kept_lines import OutputTokens, TokenLines, count_lines, output_tokens
from pipeline.views.trajectory import Message, Trajectory

_HEAD_MESSAGES = 2
"""System and task messages, which no trimming takes."""

_PROBE = "planprune-probe"


class PromptError(ValueError):
    """An output that cannot be found in its prompt, or does not fit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A prompt that ends after an output, tokenized."""

    message_index: int
    """The output's, in its run."""
    ids: tuple[int, ...]
    output: OutputTokens


class PromptMaker:
    """Makes the prompts of one run, in order."""

    def __init__(
        self,
        tokenizer: Any,
        trajectory: Trajectory,
        *,
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
        template_kwargs: Mapping[str, Any],
        calls_as_text: bool,
    ) -> None:
        self._tokenizer, self._messages = tokenizer, trajectory.messages
        self._tools, self._max_tokens = tools, max_tokens
        self._kwargs, self._calls_as_text = template_kwargs, calls_as_text
        self._first = min(_HEAD_MESSAGES, len(self._messages))
        """The first message after the head that is still in the window."""

    def prompt(self, message_index: int) -> Prompt:
        """Return the prompt that ends with the output at `message_index`.

        Raises:
            PromptError: the template does not show the output, or it alone is too long.
        """
        ids, offsets, text = self._encoded(message_index)
        while len(ids) > self._max_tokens:
            if not self._trim(message_index, len(ids)):
                raise PromptError(
                    f"its prompt has {len(ids)} tokens without any older turn; max_prompt_tokens "
                    f"is {self._max_tokens}"
                )
            ids, offsets, text = self._encoded(message_index)
        output = found_output(text, self._messages[message_index].content, offsets)
        # What follows the output cannot change its states.
        return Prompt(message_index=message_index, ids=tuple(ids[: output.end]), output=output)

    def _encoded(self, message_index: int) -> tuple[list[int], list[tuple[int, int]], str]:
        head = self._messages[: min(_HEAD_MESSAGES, len(self._messages))]
        shown = [*head, *self._messages[self._first : message_index + 1]]
        text = self._tokenizer.apply_chat_template(
            [template_message(m, calls_as_text=self._calls_as_text) for m in shown],
            tools=self._tools,
            tokenize=False,
            add_generation_prompt=False,
            **self._kwargs,
        )
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return encoded["input_ids"], encoded["offset_mapping"], text

    def _trim(self, message_index: int, n_tokens: int) -> bool:
        """Drop the oldest turns down to half a window; return False if none can go."""
        starts = [
            m.index
            for m in self._messages[self._first + 1 : message_index]
            if m.role == "assistant"
        ]
        if not starts:
            return False
        sizes = [len(m.content) + len(m.reasoning or "") + 50 for m in self._messages]
        excess = 1 - self._max_tokens / 2 / n_tokens
        budget = excess * sum(sizes[: message_index + 1])
        dropped, first = 0, self._first
        for start in starts:
            dropped += sum(sizes[first:start])
            first = start
            if dropped >= budget:
                break
        self._first = first
        return True


def template_message(message: Message, *, calls_as_text: bool) -> dict[str, Any]:
    """Return a message as chat templates take it: arguments as objects, reasoning under two names.

    Args:
        message: Of the trajectory.
        calls_as_text: Write the calls into the text, for a template that leaves them out.
    """
    content = message.content
    chat: dict[str, Any] = {"role": message.role}
    if message.tool_calls and calls_as_text:
        content = "\n".join([content, *(f"{c.name} {c.arguments}" for c in message.tool_calls)])
    elif message.tool_calls:
        chat["tool_calls"] = [
            {
                "id": c.id,
                "type": "function",
                "function": {"name": c.name, "arguments": _arguments(c.arguments)},
            }
            for c in message.tool_calls
        ]
    if message.reasoning:
        chat["reasoning"] = chat["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        chat["tool_call_id"] = message.tool_call_id
    return {**chat, "content": content}


def renders_calls(tokenizer: Any) -> bool:
    """Return whether the chat template writes tool calls into the prompt."""
    function = {"name": "bash", "arguments": {"command": _PROBE}}
    text = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "-"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "type": "function", "function": function}],
            },
            {"role": "tool", "content": "-", "tool_call_id": "c"},
        ],
        tokenize=False,
    )
    return _PROBE in text


def found_output(prompt: str, text: str, offsets: Sequence[tuple[int, int]]) -> OutputTokens:
    """Return the tokens of the last place where `text` stands in `prompt`.

    Templates may trim what they show: lines that were trimmed away have no tokens.

    Raises:
        PromptError: the text is not in the prompt.
    """
    start = prompt.rfind(text)
    if start >= 0:
        return output_tokens(offsets, text, start)
    shown = text.strip()
    start = prompt.rfind(shown) if shown else -1
    if start < 0:
        raise PromptError("the chat template does not show the output as it is")
    found = output_tokens(offsets, shown, start)
    skipped = text[: text.find(shown)].count("\n")
    return OutputTokens(
        start=found.start,
        end=found.end,
        lines=TokenLines(
            first=found.lines.first + skipped,
            last=found.lines.last + skipped,
            n_lines=count_lines(text),
        ),
    )


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
