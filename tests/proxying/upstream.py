"""An upstream that answers with given bytes, whatever it is asked: real sockets, no rules.

It is for what no well-behaved server does: answers that break off, that come in odd pieces, that
lack half of their fields. Well-behaved answers come from the simulated server.
"""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

CLOSE = b""
"""In a script: shut the connection down, whatever was promised."""


@dataclass
class Received:
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)


@dataclass
class Upstream:
    """Answers request number k with the pieces of script k; the last script is repeated."""

    scripts: Sequence[Sequence[bytes]]
    received: list[Received] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    """A piece b"HOLD" waits for it."""
    port: int = 0
    news: threading.Condition = field(default_factory=threading.Condition)

    def wait_for_chats(self, n: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.chats) >= n, 20)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def chats(self) -> list[Received]:
        return [r for r in self.received if r.path.startswith("/v1/chat")]


@contextmanager
def scripted(*scripts: Sequence[bytes]) -> Iterator[Upstream]:
    upstream = Upstream(scripts)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline()
                if not line:
                    return
                head += line
            first, *lines = head.decode("latin-1").rstrip().split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            received = Received(first.split(" ")[1], headers, body)
            with upstream.news:
                upstream.received.append(received)
                upstream.news.notify_all()
            if not received.path.startswith("/v1/chat"):
                self.wfile.write(whole(b'{"data": []}'))
                return
            place = min(len(upstream.chats), len(upstream.scripts)) - 1
            for piece in upstream.scripts[place]:
                if piece == CLOSE:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0" * 2)
                    return
                if piece == b"HOLD":
                    upstream.hold.wait(20)
                    continue
                try:
                    self.wfile.write(piece)
                except OSError:
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 64

        def handle_error(self, request, client_address) -> None:
            """A proxy that hangs up is no error of this server."""

    with Server(("127.0.0.1", 0), Handler) as server:
        upstream.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield upstream
        finally:
            upstream.hold.set()
            server.shutdown()
            thread.join()


def whole(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """Return an answer in one piece."""
    named = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body


def reply(
    content: str | None = "Fine.", *, calls: Sequence[tuple] = (), **changes: object
) -> bytes:
    """Return a chat completion; `calls` are (id, command)."""
    message = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [bash_call(*call) for call in calls]
    body = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        **changes,
    }
    return whole(json.dumps(body).encode())


def bash_call(call_id: str, command: str) -> dict:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {"id": call_id, "type": "function", "function": function}


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def chunk(data: bytes) -> bytes:
    """Return a piece of a body as HTTP/1.1 frames it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: object, end: bytes = b"\n\n") -> bytes:
    """Return a server-sent event."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return b"data: " + text.encode() + end


def delta(**fields: object) -> dict:
    finish = fields.pop("finish_reason", None)
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


USAGE = {"prompt_tokens": 321, "completion_tokens": 12, "total_tokens": 333}
