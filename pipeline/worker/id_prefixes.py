"""How much of every prompt an earlier one held, token by token, found while the run goes on.

Where the server returns token ids, the common prefix is exact (docs/methods.md, Cache accounting);
texts can only come near it. The ids themselves are not kept: a run's prompts add up to millions.
"""

from pipeline.accounting.prefix_tree import IdPrefix
from pipeline.protocols import ChatReply, ChatRequest, Completer


class IdPrefixes:
    """A run's completer that notes the common prefix of every prompt that was answered."""

    def __init__(self, completer: Completer) -> None:
        self.lcp_tokens: list[int | None] = []
        """One for every answer, in order; None from the first answer without ids on."""
        self._completer = completer
        self._ids = IdPrefix()

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; see `pipeline.protocols.Completer`."""
        reply = self._completer.complete(request)
        completion = reply.completion_token_ids or ()
        self.lcp_tokens.append(self._ids.charge(reply.prompt_token_ids, completion))
        return reply
