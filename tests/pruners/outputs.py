"""Outputs as a pruner gets them."""

from pipeline.views.policy import PruneRequest


def request(text: str, query: str | None = "where is the needle?") -> PruneRequest:
    return PruneRequest(message_index=3, history=(), command="cat f", text=text, query=query)


def shown(text: str, kept: object) -> str:
    """The kept lines, joined."""
    assert isinstance(kept, list)
    lines = text.split("\n")
    return "\n".join(line for line, stays in zip(lines, kept, strict=False) if stays)


ODD = {
    "multi-byte": "données Ω 数据 !\nżółw 数据\n" * 6,
    "crlf": "keep ! one\r\ndrop two\r\n" * 8,
    "carriage returns": "10%\r20%\r30%\rdone !\nplain\n" * 5,
    "one very long line": "x! " * 500,
    "a very long line among others": "short !\n" + "y" * 1500 + "\nshort !\nlast",
    "blank lines": "\n\n! a\n\n\n\nb\n   \n\tc\n\n" * 4,
    "only blank": "\n \n\t\n" * 20,
    "empty": "",
    "no final newline": "a !\nb\nc\nd",
    "many lines": "".join(f"line {i} {'!' if i % 5 == 0 else ''}\n" for i in range(300)),
}
"""Texts that are not what anybody trains on, by what is odd about them."""
