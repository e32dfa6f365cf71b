"""Small real parts that tests share: a scripted model server, an echoing sandbox, a word counter.

`ScriptedModel` is a real HTTP server: what a test reads in `requests` is what arrived as bytes.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from zlib import crc32

from pipeline.agent.run_diff import FIRST_COMMIT_COMMAND
from pipeline.protocols import CommandResult

Message = dict[str, Any]

FIRST_COMMIT = "c0ffee"
"""What an echoing sandbox has checked out."""


# --- replies -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Reply:
    """One scripted answer of the server."""

    message: Message = field(default_factory=dict)
    status: int = 200
    body: bytes | None = None
    """Sent instead of a completion; shorter than announced when `torn`."""
    finish_reason: str = "stop"
    usage: Message = field(default_factory=dict)
    torn: bool = False
    delay_s: float = 0.0
    hang_up: bool = False
    """Close the connection without an answer."""


def call(name: str, **arguments: Any) -> Message:
    """Return a tool call as a server writes it; `says` numbers the ids."""
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def bash(command: str) -> Message:
    """Return a call of bash."""
    return call("bash", command=command)


def planctl(action: str, **arguments: Any) -> Message:
    """Return a call of planctl."""
    return call("planctl", action=action, **arguments)


def says(content: str = "", *calls: Message, reasoning: str | None = None, **reply: Any) -> Reply:
    """Return an answer with text and tool calls."""
    message: Message = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{n}_{crc32(str(c).encode()):08x}", **c} for n, c in enumerate(calls)
        ]
    finish = reply.pop("finish_reason", "tool_calls" if calls else "stop")
    return Reply(message=message, finish_reason=finish, **reply)


def submits(patch_command: str = "cat patch.txt") -> Reply:
    """Return the answer that ends a run."""
    return says("Done.", bash(f"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && {patch_command}"))


# --- the server ----------------------------------------------------------------------------------
class ScriptedModel:
    """An OpenAI-compatible server that answers from a script and keeps every request."""

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Message], Reply],
        *,
        name: str = "scripted",
        about: Message | None = None,
    ) -> None:
        self.requests: list[Message] = []
        """Bodies of the chat completions, as they arrived."""
        self.connections = 0
        self.on_headers: Callable[[Any], object] = lambda _headers: None
        """Called with the headers of every chat completion."""
        self.name = name
        self.about = about or {}
        """What `/v1/models` says of the model beside its name."""
        self._answer = replies if callable(replies) else _in_order(list(replies))
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def base_url(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def drop_connections(self) -> None:
        """Close what clients hold open, as servers do with idle connections."""
        for connection in self._server.open_connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, body: Message) -> Reply:
        """Return the next reply and keep the request."""
        with self._lock:
            self.requests.append(body)
            return self._answer(body)


def _in_order(replies: Sequence[Reply]) -> Callable[[Message], Reply]:
    rest = iter(replies)

    def answer(_body: Message) -> Reply:
        return next(rest)

    return answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: ScriptedModel) -> None:
        self.script = script
        self.open_connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent: a client that gave up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together; apart, they wait 40 ms for an acknowledgement
    server: _Server

    def setup(self) -> None:
        self.server.script.connections += 1
        self.server.open_connections.append(self.request)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""

    def do_GET(self) -> None:
        self._send(
            200,
            json.dumps(
                {"data": [self.server.script.about | {"id": self.server.script.name}]}
            ).encode(),
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.script.on_headers(self.headers)
        reply = self.server.script.answer(body)
        time.sleep(reply.delay_s)
        if reply.hang_up:
            self.close_connection = True
            return
        data = reply.body if reply.body is not None else completion(body, reply)
        self._send(reply.status, data, torn=reply.torn)

    def _send(self, status: int, data: bytes, *, torn: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if torn else data)
        if torn:
            self.close_connection = True


def completion(body: Message, reply: Reply) -> bytes:
    """Return a completion; tokens are words of the request and the reply."""
    usage = {
        "prompt_tokens": len(json.dumps(body["messages"]).split()),
        "completion_tokens": len(json.dumps(reply.message).split()),
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    choice = {"index": 0, "message": reply.message, "finish_reason": reply.finish_reason}
    return json.dumps({"choices": [choice], "usage": usage | reply.usage}).encode()


# --- sandbox and counter -------------------------------------------------------------------------
class EchoSandbox:
    """A sandbox without a shell: a few commands have scripted results, others echo themselves."""

    workdir = "/testbed"

    def __init__(
        self, results: dict[str, CommandResult | str | Exception] | None = None, *, patch: str = ""
    ) -> None:
        self.commands: list[str] = []
        self.stopped = False
        self._results = results or {}
        self._patch = patch

    def execute(
        self,
        command: str,
        *,
        timeout_s: float,  # noqa: ARG002
        whole_after: bytes | None = None,  # noqa: ARG002
    ) -> CommandResult:
        if command == FIRST_COMMIT_COMMAND:
            return CommandResult(output=f"{FIRST_COMMIT}\n", returncode=0)
        self.commands.append(command)
        result = self._results.get(command)
        if isinstance(result, Exception):
            raise result
        if isinstance(result, CommandResult):
            return result
        if command.startswith("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"):
            return CommandResult(
                output=f"COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT\n{self._patch}", returncode=0
            )
        return CommandResult(output=f"{command}\n" if result is None else result, returncode=0)

    def upload(self, data: bytes, path: str) -> None:
        raise NotImplementedError

    def download(self, path: str, *, limit_bytes: int) -> bytes:
        raise NotImplementedError

    def stop(self) -> None:
        self.stopped = True


class WordCounter:
    """Counts words."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())
