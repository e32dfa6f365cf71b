"""A radix tree over everything a run has sent, to find the longest prefix it sent before.

A prompt nearly always repeats the previous one and continues it, so the tree keeps a cursor. Moving
it back to where two prompts differ and continuing from there costs only what is new, so that a run
costs the length of its trajectory and not calls times prompt length. Units are characters; a
sequence of token ids is a string of as many characters.
"""

from collections.abc import Iterable, Sequence


def ids_as_text(ids: Iterable[int]) -> str:
    """Return token ids as a string with one character per id, for `PrefixTree`."""
    return "".join(map(chr, ids))


def common_length(a: str, a_start: int, b: str, b_start: int) -> int:
    """Return how many characters of `a` and `b` agree from the given places on."""
    limit = min(len(a) - a_start, len(b) - b_start)
    if a[a_start : a_start + limit] == b[b_start : b_start + limit]:
        return limit
    agreed, step = 0, 64
    while step:
        end = min(limit, agreed + step)
        if a[a_start + agreed : a_start + end] == b[b_start + agreed : b_start + end]:
            agreed = end
            step = min(step * 4, limit - agreed)
        elif end - agreed == 1:
            return agreed
        else:
            # They differ somewhere in this window, which is halved until it is one character.
            limit = end
            step = (end - agreed) // 2
    return agreed


class Node:
    """The end of an edge of the tree; a place to return to."""

    __slots__ = ("children", "end", "parent", "text")

    def __init__(self, parent: "Node | None", text: str) -> None:
        self.parent = parent
        self.text = text
        self.end: int = (0 if parent is None else parent.end) + len(text)
        self.children: dict[str, Node] = {}


class PrefixTree:
    """Strings sent so far, and a cursor at the end of the last one."""

    def __init__(self) -> None:
        self.root = Node(None, "")
        self.cursor = self.root
        """May be kept and set again: a place stays valid whatever is added elsewhere."""

    def go_back(self, depth: int) -> None:
        """Move the cursor up to `depth` units from the start.

        Raises:
            ValueError: the cursor is not that deep.
        """
        node = self.cursor
        if not 0 <= depth <= node.end:
            raise ValueError(f"cannot go back to {depth}: the last string has {node.end} units")
        while node.parent is not None and node.parent.end >= depth:
            node = node.parent
        if node.end > depth:
            node = _split(node, len(node.text) - (node.end - depth))
        self.cursor = node

    def go_on(self, text: str) -> int:
        """Append `text` at the cursor; return how much of it had been sent before from here."""
        place = 0
        while place < len(text):
            child = self.cursor.children.get(text[place])
            if child is None:
                self.cursor = _attach(self.cursor, text[place:])
                return place
            same = common_length(child.text, 0, text, place)
            self.cursor = child if same == len(child.text) else _split(child, same)
            place += same
        return place


class IdPrefix:
    """The longest prefix of every prompt of a run that was sent before, on token ids."""

    def __init__(self) -> None:
        self._tree: PrefixTree | None = PrefixTree()
        self._last = ""

    def charge(self, prompt: Sequence[int] | None, completion: Sequence[int]) -> int | None:
        """Return how many ids of `prompt` were sent before, and remember it with its completion.

        None from the first prompt without ids on: later text would seem newer than it was.
        At most `len(prompt) - 1`: one token is always computed.
        """
        if self._tree is None or prompt is None:
            self._tree = None
            return None
        text = ids_as_text(prompt)
        kept = common_length(self._last, 0, text, 0)
        self._tree.go_back(kept)
        prefix = kept + self._tree.go_on(text[kept:])
        self._tree.go_on(ids_as_text(completion))
        self._last = text
        return min(prefix, max(len(text) - 1, 0))


def _attach(parent: Node, text: str) -> Node:
    node = parent.children[text[0]] = Node(parent, text)
    return node


def _split(node: Node, at: int) -> Node:
    """Put a node into the edge to `node` after `at` units, and return it."""
    parent = node.parent
    if parent is None:
        raise ValueError("the root has no edge to split")
    upper = _attach(parent, node.text[:at])
    node.text = node.text[at:]
    node.parent = upper
    upper.children[node.text[0]] = node
    return upper
