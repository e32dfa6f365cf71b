"""The HTTP server: a hand-written HTTP/1.1 protocol on asyncio, and the thread it runs in.

Only what clients of chat completions send is understood: Content-Length bodies and keep-alive;
no chunked requests, no TLS. Requests of one connection are answered in order.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.host.files import replace_bytes
from pipeline.host.process import is_alive, process_identity
from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.service import Response, SimService

MAX_BODY_BYTES = 64 * 1024 * 1024
PARENT_POLL_S = 0.5

_PHRASES = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Payload Too Large"}


class _Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, service: SimService) -> None:
        self._service = service
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_answering = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the protocol's)
        if self._is_answering:
            self._service.metrics.running -= 1
            self._is_answering = False
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._take_request()

    def _take_request(self) -> None:
        """Answer the next request if it has arrived whole."""
        if self._is_answering:
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > MAX_BODY_BYTES:
                self._refuse(413, "the head is too long")
            return
        lines = bytes(self._received[:end]).decode("latin-1").split("\r\n")
        headers = _headers(lines[1:])
        length = headers.get("content-length", "0")
        words = lines[0].split(" ")
        if len(words) != 3 or not length.isdigit() or "transfer-encoding" in headers:
            self._refuse(400, "send HTTP/1.1 requests with a Content-Length")
            return
        if int(length) > MAX_BODY_BYTES:
            self._refuse(413, "the body is too long")
            return
        stop = end + 4 + int(length)
        if len(self._received) < stop:
            if headers.get("expect") == "100-continue" and len(self._received) == end + 4:
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._received[end + 4 : stop])
        del self._received[:stop]
        self._answer(words[0], words[1], body, keeps=headers.get("connection") != "close")

    def _answer(self, method: str, path: str, body: bytes, *, keeps: bool) -> None:
        response = self._service.respond(method, path, body)
        # Only now: a question for the metrics is no request that they count.
        self._is_answering = True
        self._service.metrics.running += 1
        if response.never:
            return
        if response.delay_s <= 0:
            self._send(response, keeps=keeps)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(response.delay_s, lambda: self._send(response, keeps=keeps))

    def _send(self, response: Response, *, keeps: bool) -> None:
        self._is_answering = False
        self._service.metrics.running -= 1
        self._timer = None
        self._write(_encoded(response, keeps=keeps))
        if not keeps and self._transport is not None:
            self._transport.close()
        elif self._received:
            self._take_request()

    def _refuse(self, status: int, message: str) -> None:
        body = message.encode()
        self._write(
            _encoded(Response(status=status, body=body, content_type="text/plain"), keeps=False)
        )
        if self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _headers(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip().lower() for name, _, value in pairs}


def _encoded(response: Response, *, keeps: bool) -> bytes:
    phrase = _PHRASES.get(response.status, "Internal Server Error")
    head = (
        f"HTTP/1.1 {response.status} {phrase}\r\n"
        f"content-type: {response.content_type}\r\n"
        f"content-length: {len(response.body)}\r\n"
        f"connection: {'keep-alive' if keeps else 'close'}\r\n\r\n"
    )
    return head.encode("latin-1") + response.body


async def run_server(
    config: SimConfig, stop: asyncio.Event, when_ready: Callable[[int], None] | None = None
) -> None:
    """Serve until `stop` is set or the parent process is gone.

    Args:
        when_ready: called with the bound port once requests are answered.

    Raises:
        OSError: the port is taken, or the port file cannot be written.
        ValueError: the recipes are broken.
    """
    service = SimService(config)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(service), config.host, config.port, backlog=512
    )
    port = int(server.sockets[0].getsockname()[1])
    watcher = loop.create_task(_watch_parent(config.parent_pid, stop))
    try:
        if config.port_file is not None:
            replace_bytes(config.port_file, f"{port}\n".encode())
        if when_ready is not None:
            when_ready(port)
        await stop.wait()
    finally:
        watcher.cancel()
        server.close()


async def _watch_parent(pid: int | None, stop: asyncio.Event) -> None:
    """Set `stop` once process `pid` is gone (or was never there)."""
    if pid is None:
        return
    identity = process_identity(pid)
    while identity is not None and is_alive(identity):
        await asyncio.sleep(PARENT_POLL_S)
    stop.set()


@dataclass(kw_only=True)
class SimHandle:
    """A simulated server running in a thread of this process."""

    port: int
    _loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event
    _thread: threading.Thread

    @property
    def base_url(self) -> str:
        """The URL that OpenAI-compatible clients want, with `/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def stop(self) -> None:
        """Stop the server and wait for its thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> "SimHandle":
        """Return the running server; it stops at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()


def serve(config: SimConfig) -> SimHandle:
    """Return a server that answers already, in a thread of this process.

    Raises:
        OSError: the port is taken.
        ValueError: the recipes are broken.
    """
    started = threading.Event()
    made: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []
    failed: list[OSError | ValueError] = []

    async def main() -> None:
        stop = asyncio.Event()

        def ready(port: int) -> None:
            made.append((port, asyncio.get_running_loop(), stop))
            started.set()

        await run_server(config, stop, ready)

    def run() -> None:
        try:
            asyncio.run(main())
        except (OSError, ValueError) as error:
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name=f"sim-{os.getpid()}", daemon=True)
    thread.start()
    started.wait()
    if failed:
        raise failed[0]
    port, loop, stop = made[0]
    return SimHandle(port=port, _loop=loop, _stop=stop, _thread=thread)
