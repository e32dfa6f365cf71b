"""The proxy's HTTP server: reads requests, refuses those no arm applies to, passes on the rest.

A thread a connection, which stays open between requests. Paths are those of the interface, with or
without `/v1`, and with `/as/NAME` before them where the client says which instance it works on.
Requests and headers are written nowhere.
"""

import contextlib
import re
import socket
import socketserver
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pipeline.proxying.chat_call import ChatCall, UnreadableError, chat_call
from pipeline.proxying.exchange import (
    BAD_GATEWAY,
    SERVER_ERROR,
    ClientGoneError,
    Headers,
    Sink,
    read_whole,
    said,
)
from pipeline.records.failure import DiskError
from pipeline.serving.connections import Connections, NotSentError, TransientError

MAX_BODY_BYTES = 512 << 20
_CHUNK_LINE_BYTES = 1 << 10

_PATH = re.compile(r"(?:/as/(?P<instance>[^/?]+))?(?:/v1(?=/))?(?P<rest>/[^?]*)(?P<query>\?.*)?")
CHAT = "/chat/completions"
_OTHER_INTERFACES = ("/responses", "/messages", "/completions", "/conversations")

_OF_THIS_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "host", "content-length", "expect"),
        # An answer that is packed could not be read.
        *("accept-encoding", "proxy-connection"),
    }
)
_OF_AN_ANSWER = _OF_THIS_HOP | {"date", "server"}

Carry = Callable[[ChatCall, str | None, Sink], None]
"""(request, instance that the client named, client) -> answers it."""


class BodyError(Exception):
    """The body cannot be had; `status` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ProxyServer(ThreadingHTTPServer):
    """Listens; every connection has a thread."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, upstream: Connections, carry: Carry) -> None:
        """Bind.

        Raises:
            OSError: the port is taken, or the host is not this machine.
        """
        self.upstream, self.carry = upstream, carry
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def port(self) -> int:
        """The port that clients are to call."""
        return int(self.server_address[1])

    def server_bind(self) -> None:
        """Bind without the look-up of this host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.port

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what failed; a client that left is no failure."""
        if not isinstance(sys.exception(), ClientGoneError | ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ProxyServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing: a path may hold a key."""

    def _serve(self) -> None:
        client = _Client(self)
        try:
            body = self._body()
        except BodyError as error:
            self.close_connection = True
            client.whole(error.status, *said(str(error)))
            return
        path = _PATH.fullmatch(self.path)
        rest = "" if path is None else path["rest"].rstrip("/")
        if path is None or rest.startswith(_OTHER_INTERFACES):
            why = f"it edits chat completions only; have your client use them, not {rest}"
            client.whole(501, *said(why))
            return
        headers = _passed_on(self.headers.items(), _OF_THIS_HOP)
        target = rest + (path["query"] or "")
        if rest != CHAT:
            self._pass_on(target, headers, body, client)
        elif self.command != "POST":
            client.whole(405, *said(f"{CHAT} takes POST"))
        else:
            self._chat(target, headers, body, unquote(path["instance"] or ""), client)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_HEAD = _serve  # noqa: N815

    def _chat(
        self, target: str, headers: Headers, body: bytes, instance: str, client: "_Client"
    ) -> None:
        try:
            call = chat_call(body, headers, target)
        except UnreadableError as error:
            client.whole(400, *said(str(error)))
            return
        try:
            self.server.carry(call, instance or None, client)
        except DiskError as error:
            if client.has_begun:
                client.cut()
            else:
                client.whole(SERVER_ERROR, *said(str(error)))
            raise

    def _pass_on(self, target: str, headers: Headers, body: bytes, client: "_Client") -> None:
        """Pass a request on that is no completion, such as the list of models."""
        try:
            connection, response = self.server.upstream.open_answer(
                self.command, target, body or None, headers
            )
            try:
                data = read_whole(response)
            finally:
                connection.close()
        except (NotSentError, TransientError) as error:
            client.whole(BAD_GATEWAY, *said(f"no answer from the upstream: {error}"))
            return
        client.whole(response.status, dict(response.headers), data)

    def _body(self) -> bytes:
        """Return the request's body."""
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise BodyError(415, "send the body as it is, not packed")
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            if coding.strip().lower() != "chunked":
                raise BodyError(501, f"no transfer encoding {coding!r} here; send a Content-Length")
            return self._chunks()
        length = self.headers.get("content-length", "0").strip()
        if not (length.isascii() and length.isdigit()):
            raise BodyError(400, "the Content-Length is no number")
        self._check_size(int(length))
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ClientGoneError("the body did not come whole")
        return body

    def _chunks(self) -> bytes:
        parts, size = [], 0
        while True:
            line = self.rfile.readline(_CHUNK_LINE_BYTES)
            if not line.endswith(b"\n"):
                raise ClientGoneError("the body did not come whole")
            try:
                length = int(line.partition(b";")[0], 16)
            except ValueError as error:
                raise BodyError(400, "the chunked body is malformed") from error
            size += length
            self._check_size(size)
            if length < 0:
                raise BodyError(400, "the chunked body is malformed")
            part = self.rfile.read(length)
            if len(part) < length:
                raise ClientGoneError("the body did not come whole")
            parts.append(part)
            # After the last one, headers may follow up to an empty line.
            while self.rfile.readline(_CHUNK_LINE_BYTES).strip() and length == 0:
                pass
            if length == 0:
                return b"".join(parts)

    def _check_size(self, n_bytes: int) -> None:
        if n_bytes > MAX_BODY_BYTES:
            raise BodyError(413, f"the body has more than {MAX_BODY_BYTES:,} bytes")


class _Client:
    """The `Sink` of a handler."""

    def __init__(self, handler: _Handler) -> None:
        self._handler = handler
        self.has_begun = False
        self._chunked = False

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer in one piece."""
        if self._handler.command == "HEAD" or status in (204, 304):
            body = b""
        self._head(status, headers, {"Content-Length": str(len(body))})
        self._write(body)

    def begin(self, status: int, headers: Headers) -> None:
        """Send the head of an answer that comes in pieces."""
        # HTTP/1.0 has no chunks: there the end of the connection is the end of the answer.
        self._chunked = self._handler.request_version != "HTTP/1.0"
        if not self._chunked:
            self._handler.close_connection = True
        self._head(status, headers, {"Transfer-Encoding": "chunked"} if self._chunked else {})

    def write(self, data: bytes) -> None:
        """Send a piece."""
        if data:
            self._write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """Say that this was all."""
        if self._chunked:
            self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Break off: without the last chunk the client sees that it was not all."""
        self._handler.close_connection = True

    def _head(self, status: int, headers: Headers, framing: Headers) -> None:
        self.has_begun = True
        handler = self._handler
        handler.send_response_only(status)
        for name, value in {**_passed_on(headers.items(), _OF_AN_ANSWER), **framing}.items():
            handler.send_header(name, value)
        if handler.close_connection:
            handler.send_header("Connection", "close")
        with self._while_there():
            handler.end_headers()

    def _write(self, data: bytes) -> None:
        with self._while_there():
            self._handler.wfile.write(data)

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            self._handler.close_connection = True
            raise ClientGoneError(str(error)) from error


def _passed_on(headers: Any, left_out: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in left_out}
