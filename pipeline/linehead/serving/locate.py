"""Where outputs are in a tokenized prompt: found by their text, from the end.

The engine has the prompt's ids and no text. Only the tail that can hold the outputs is decoded,
from the beginning of a message on, and encoded again for the offsets; ids that do not come back
the same are refused, since offsets would then be a guess. Knows tokenizers only as objects.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.linehead.prompts import PromptError, found_output
from pipeline.views.kept_lines import OutputTokens

_FIRST_WINDOW_TOKENS = 512


def located_outputs(
    tokenizer: Any, ids: Sequence[int], texts: Sequence[str]
) -> list[OutputTokens | str]:
    """Return where each text is in the prompt, or why it cannot be said.

    Args:
        tokenizer: The served model's; must give offsets.
        ids: The prompt.
        texts: In the order in which they stand in it; each is found at its last place before the
            ones that follow.
    """
    window = sum(map(len, texts)) // 2 + _FIRST_WINDOW_TOKENS
    while True:
        begin = _message_start(tokenizer, ids, len(ids) - window)
        tail = list(ids[begin:])
        text = tokenizer.decode(tail, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if begin == 0 or all(t.strip() in text for t in texts):
            break
        window *= 2
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    if list(encoded["input_ids"]) != tail:
        return ["the prompt's tokens do not come back the same from their text"] * len(texts)
    found: list[OutputTokens | str] = []
    limit = len(text)
    for wanted in reversed(texts):
        try:
            output = found_output(text[:limit], wanted, encoded["offset_mapping"])
        except (PromptError, ValueError) as error:
            found.append(str(error))
            continue
        limit = encoded["offset_mapping"][output.start][0]
        found.append(
            OutputTokens(start=begin + output.start, end=begin + output.end, lines=output.lines)
        )
    return found[::-1]


def _message_start(tokenizer: Any, ids: Sequence[int], place: int) -> int:
    """Return the first special token at or after `place`; 0 if there is none or at the start."""
    if place <= 0:
        return 0
    special = frozenset(tokenizer.all_special_ids)
    return next((i for i in range(place, len(ids)) if ids[i] in special), 0)
