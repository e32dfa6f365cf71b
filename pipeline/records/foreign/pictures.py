"""The weight of pictures: what they added to the served prompt.

A text's tokens can be counted here, a picture's cannot. The server counted both: from one call to
the next its prompt grew by all that was said in between, and what the texts do not explain is the
pictures'. Without these numbers the file is refused, for a view in which pictures weigh nothing
would make arms that drop them look worse than they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.records.run_record import CallRecord
from pipeline.views.trajectory import Message


def n_pictures(content: object) -> int:
    """Return how many parts of a message's content are pictures."""
    parts = content if isinstance(content, list) else []
    kinds = [str(part.get("type")) for part in parts if isinstance(part, Mapping)]
    return sum("image" in kind for kind in kinds)


def weighed(
    messages: Sequence[Message], calls: Sequence[CallRecord], pictures: Mapping[int, int]
) -> list[Message]:
    """Return the messages with the weight of their pictures in `n_tokens`.

    Args:
        messages: counted by their texts alone.
        calls: in order, with the prompt sizes that the server reported.
        pictures: index of a message to its pictures.

    Raises:
        ValueError: the prompt sizes that would tell are missing, or did not grow.
    """
    found = list(messages)
    first, served = 0, 0
    waiting = dict(pictures)
    for call in calls:
        if call.prompt_tokens is None:
            continue
        span = found[first : call.message_count]
        held = {m.index: waiting.pop(m.index) for m in span if m.index in waiting}
        weight = call.prompt_tokens - served - sum(m.n_tokens + m.reasoning_tokens for m in span)
        if held and weight <= 0:
            raise ValueError(
                f"message {min(held)} holds pictures, and the served prompt did not grow by them: "
                "their weight is unknown"
            )
        total = sum(held.values())
        for index, n in held.items():
            tokens = found[index].n_tokens + round(weight * n / total)
            found[index] = replace(found[index], n_tokens=tokens)
        first, served = call.message_count, call.prompt_tokens
    unserved = [
        index for index in waiting if index < max((c.message_count for c in calls), default=0)
    ]
    if unserved:
        raise ValueError(
            f"message {min(unserved)} holds pictures, and no call after it has a prompt size: "
            "their weight is unknown"
        )
    return found
