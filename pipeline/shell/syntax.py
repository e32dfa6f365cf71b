"""A shell command as bash parses it: its pipelines in order, each a row of simple commands.

Loops, subshells, groups, conditions and functions are flattened, since what matters to every user
is which programs run on which words. tree-sitter-bash reads the text; here-documents are taken out
first, because that grammar misplaces what follows `<<EOF` on its line. A text that is no valid
shell is read as far as the parser recovers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_BODY = "/heredoc/"
"""Stands before the number of a here-document that was taken out: `< /heredoc/0`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One simple command."""

    words: tuple[str, ...]
    """Program and arguments without quotes; expansions stay, assignments before it do not."""
    writes: tuple[str, ...] = ()
    """Files that its standard output goes to, `/dev/null` included."""
    reads: tuple[str, ...] = ()
    """Files that its standard input comes from."""
    heredoc: str = ""

    @property
    def program(self) -> str:
        """Its first word without folders; empty where there is none."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The other words."""
        return self.words[1:]


Pipeline = tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document and where its body stands in the command."""

    body: str
    start: int
    end: int


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def pipelines(command: str) -> list[Pipeline]:
    """Return the pipelines of a command in the order of its text."""
    text, documents = without_heredocs(command)
    tree = _parser().parse(text.encode("utf-8", "replace"))
    return list(_Reader(documents).pipelines(tree.root_node))


def without_heredocs(command: str) -> tuple[str, list[Heredoc]]:
    """Return the command with each here-document as a file that is read, and the documents."""
    if "<<" not in command:
        return command, []
    lines = command.splitlines(keepends=True)
    kept: list[str] = []
    found: list[Heredoc] = []
    at, place = 0, 0
    while at < len(lines):
        line = lines[at]
        place += len(line)
        at += 1
        pieces, last = [], 0
        for match in _HEREDOC.finditer(line):
            end = _terminator(lines, at, match[2])
            if end is None:
                continue
            body = "".join(lines[at:end])
            pieces.append(f"{line[last : match.start()]}< {_BODY}{len(found)} ")
            found.append(Heredoc(body=body, start=place, end=place + len(body)))
            place += sum(map(len, lines[at : end + 1]))
            at, last = end + 1, match.end()
        kept.append("".join(pieces) + line[last:])
    return "".join(kept), found


def _terminator(lines: Sequence[str], first: int, word: str) -> int | None:
    """Return the line that ends a here-document; models indent it without `<<-` too."""
    return next((i for i in range(first, len(lines)) if lines[i].strip() == word), None)


class _Reader:
    """Walks the tree of one command."""

    def __init__(self, documents: Sequence[Heredoc]) -> None:
        self._documents = documents
        self._values: dict[str, tuple[str, ...]] = {}
        """Loop variables whose values stand in the text."""

    def pipelines(self, node: Node) -> Iterator[Pipeline]:
        match node.type:
            case "command" | "declaration_command" | "unset_command" | "test_command":
                yield (self._stage(node),)
            case "pipeline":
                yield from self._piped(node.named_children)
            case "redirected_statement":
                yield from self._redirected(node)
            case "for_statement" | "select_statement":
                yield from self._loop(node)
            case "comment" | "variable_assignment":
                return
            case _:
                yield from self._children(node)

    def _children(self, node: Node) -> Iterator[Pipeline]:
        for child in node.named_children:
            yield from self.pipelines(child)

    def _piped(self, nodes: Sequence[Node]) -> Iterator[Pipeline]:
        """Yield a pipeline; a loop or group in it makes one of each of its own pipelines."""
        heads: list[Pipeline] = [()]
        for node in nodes:
            inner = list(self.pipelines(node))
            if len(inner) == 1 and _is_simple(node):
                heads = [head + inner[0] for head in heads]
            elif inner:
                # What stands before a loop feeds it, and only the loop's own output is seen.
                heads = inner
        yield from (head for head in heads if head)

    def _redirected(self, node: Node) -> Iterator[Pipeline]:
        body = node.child_by_field_name("body")
        found = list(self.pipelines(body)) if body is not None else [(Stage(words=()),)]
        redirects = [child for child in node.named_children if child.type.endswith("redirect")]
        # The grammar hangs `a && b > f` on the list; the shell, on `b`.
        first = len(found) - 1 if body is not None and body.type in {"list", "pipeline"} else 0
        for number, pipeline in enumerate(found):
            if number < first:
                yield pipeline
            else:
                yield (*pipeline[:-1], self._with_redirects(pipeline[-1], redirects))

    def _with_redirects(self, stage: Stage, redirects: Sequence[Node]) -> Stage:
        for node in redirects:
            target = node.child_by_field_name("destination")
            if node.type != "file_redirect" or target is None:
                continue
            operator = next((c.type for c in node.children if not c.is_named), "")
            word = "".join(self._words(target))
            if operator == "<":
                number = word.removeprefix(_BODY)
                if number != word and number.isdigit() and int(number) < len(self._documents):
                    stage = replace(stage, heredoc=self._documents[int(number)].body)
                else:
                    stage = replace(stage, reads=(*stage.reads, word))
            elif operator in {">", ">>", "&>", "&>>", ">|"} and _is_output(node):
                stage = replace(stage, writes=(*stage.writes, word))
        return stage

    def _loop(self, node: Node) -> Iterator[Pipeline]:
        name = _text(node.child_by_field_name("variable"))
        values = [w for v in node.children_by_field_name("value") for w in self._words(v)]
        if name and values:
            self._values[name] = tuple(values)
        body = node.child_by_field_name("body")
        if body is not None:
            yield from self.pipelines(body)

    def _stage(self, node: Node) -> Stage:
        if node.type != "command":
            return Stage(words=tuple(_text(node).split()))
        words: list[str] = []
        redirects = []
        for child in node.named_children:
            if child.type.endswith("redirect"):
                redirects.append(child)
            elif child.type != "variable_assignment":
                words += self._words(child)
        return self._with_redirects(Stage(words=tuple(words)), redirects)

    def _words(self, node: Node) -> tuple[str, ...]:
        """Return the words that a node stands for: one, or the values of a loop variable."""
        match node.type:
            case "command_name":
                return self._words(node.named_children[0]) if node.named_children else ()
            case "raw_string":
                return (_text(node)[1:-1],)
            case "simple_expansion" | "expansion" | "string":
                text = _text(node).strip('"')
                values = self._values.get(text.strip("${}"))
                if values is not None and text.startswith("$"):
                    return values
                return (_unescaped(text) if node.type == "string" else text,)
            case "concatenation":
                return ("".join("".join(self._words(child)) for child in node.named_children),)
            case "word":
                return (_unescaped(_text(node)),)
            case _:
                return (_text(node),)


def _is_simple(node: Node) -> bool:
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        return body is None or _is_simple(body)
    return node.type in {"command", "declaration_command", "unset_command", "test_command"}


def _is_output(redirect: Node) -> bool:
    """Return whether a redirection moves standard output."""
    descriptor = redirect.child_by_field_name("descriptor")
    return descriptor is None or _text(descriptor) == "1"


def _text(node: Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text
