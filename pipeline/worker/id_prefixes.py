"""How much of every prompt an earlier one held, token by token, found while the run goes on.

Where the server returns token ids, the common prefix is exact (METHODS 4 a); texts can only come
near it. The ids themselves are not kept: a run's prompts add up to millions.
"""

from pipeline.context.prefix_tree import PrefixTree, common_length, ids_as_text
from pipeline.protocols import ChatReply, ChatRequest, Completer


class IdPrefixes:
    """A run's completer that notes the common prefix of every prompt that was answered."""

    def __init__(self, completer: Completer) -> None:
        self.lcp_tokens: list[int | None] = []
        """One for every answer, in order; None from the first answer without ids on."""
        self._completer = completer
        self._tree: PrefixTree | None = PrefixTree()
        self._last = ""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; see `pipeline.protocols.Completer`."""
        reply = self._completer.complete(request)
        self.lcp_tokens.append(self._prefix(reply))
        return reply

    def _prefix(self, reply: ChatReply) -> int | None:
        if self._tree is None or reply.prompt_token_ids is None:
            # What came after a prompt that is not in the tree would seem newer than it was.
            self._tree = None
            return None
        prompt = ids_as_text(reply.prompt_token_ids)
        kept = common_length(self._last, 0, prompt, 0)
        self._tree.go_back(kept)
        prefix = kept + self._tree.go_on(prompt[kept:])
        self._tree.go_on(ids_as_text(reply.completion_token_ids or ()))
        self._last = prompt
        return min(prefix, max(len(prompt) - 1, 0))
