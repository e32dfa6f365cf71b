"""One request carried out: the arm decides, the upstream answers, the client gets it as it came.

Owns the calls to the upstream and their place in the record. An error of the upstream is passed on
with its status and body; what broke on the way is said in the words of the interface.
"""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from pipeline.proxying.answer import Answer, answer_in, error_text
from pipeline.proxying.chat_call import ChatCall
from pipeline.proxying.client_list import ClientMessage
from pipeline.proxying.conversation import Conversation
from pipeline.proxying.events import EventSplitter, StreamedReply, data_of, is_usage_alone
from pipeline.proxying.events import object_of as json_object
from pipeline.records.run_record import OVERFLOW
from pipeline.serving.connections import Connections, NotSentError, TransientError
from pipeline.views.policy import AuxReply, AuxRequest, CallKind

PIECE_BYTES = 1 << 16

BAD_GATEWAY, SERVER_ERROR = 502, 500
Headers = Mapping[str, str]


class ClientGoneError(Exception):
    """The client no longer takes the answer."""


class Sink(Protocol):
    """The client's end of an exchange. Writing raises `ClientGoneError`."""

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer in one piece."""
        ...

    def begin(self, status: int, headers: Headers) -> None:
        """Send the head of an answer that comes in pieces."""
        ...

    def write(self, data: bytes) -> None:
        """Send a piece."""
        ...

    def end(self) -> None:
        """Say that this was all."""
        ...

    def cut(self) -> None:
        """Break off, so that the client sees that it was not all."""
        ...


class NoAnswerError(Exception):
    """The upstream refused a call of the arm, or there was no answer at all."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.headers, self.body = status, headers, body


class Exchanges:
    """Carries out requests against one upstream. Safe to use from several threads."""

    def __init__(
        self,
        upstream: Connections,
        *,
        now: Callable[[], float],
        keep: Callable[[Conversation], None],
    ) -> None:
        """Take the upstream.

        Args:
            upstream: where requests go.
            now: Unix seconds.
            keep: puts what is new of a conversation on disk.
        """
        self._upstream, self._now, self._keep = upstream, now, keep
        self._asks_usage = True
        """False once the upstream has refused to say what a stream cost."""
        self._under_way: set[http.client.HTTPConnection] = set()

    def carry_out(self, call: ChatCall, conversation: Conversation, sink: Sink) -> None:
        """Answer a request of which the conversation has taken the list.

        Raises:
            ClientGoneError: the client left; what came until then is on record.
            DiskError: the record cannot be kept. The client was told.
        """
        try:
            conversation.decide(lambda request: self._aside(request, call, conversation))
            shown = conversation.shown(call.messages)
        except NoAnswerError as error:
            self._keep(conversation)
            sink.whole(error.status, error.headers, error.body)
            return
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            sink.whole(SERVER_ERROR, *said(f"the arm's policy failed: {error!r}"))
            raise
        sent = _Sent(call, conversation, self._now())
        try:
            self._pass_answer(sent, shown, sink)
        except (NotSentError, TransientError) as error:
            self._record(sent, Answer(error=str(error)))
            sink.whole(BAD_GATEWAY, *said(f"no answer from the upstream: {error}"))

    def cut_all(self) -> None:
        """Break off what is under way; each is recorded as far as it came."""
        for connection in list(self._under_way):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)

    def _pass_answer(self, sent: "_Sent", shown: list[ClientMessage], sink: Sink) -> None:
        call = sent.call
        for asks_usage in (True, False):
            if asks_usage and not self._asks_usage:
                continue
            with self._open(call, call.sent(shown, asks_usage=asks_usage)) as response:
                if "event-stream" in (response.headers.get("content-type") or ""):
                    self._pass_stream(sent, response, sink)
                    return
                data = read_whole(response)
                added = asks_usage and call.streams and not call.wants_usage
                if added and response.status == 400 and b"stream_options" in data:
                    # This server does not know what we asked beside; the client did not ask.
                    self._asks_usage = False
                    continue
                self._pass_whole(sent, response, data, sink)
                return

    @contextlib.contextmanager
    def _open(self, call: ChatCall, body: bytes) -> Iterator[http.client.HTTPResponse]:
        connection, response = self._upstream.open_answer("POST", call.path, body, call.headers)
        self._under_way.add(connection)
        try:
            yield response
        finally:
            self._under_way.discard(connection)
            response.close()
            connection.close()

    def _pass_whole(
        self, sent: "_Sent", response: http.client.HTTPResponse, data: bytes, sink: Sink
    ) -> None:
        if response.status >= 400:
            answer = Answer(error=error_text(response.status, data, sent.call.headers))
        else:
            answer = answer_in(json_object(data.decode("utf-8", "replace")))
        # On record before the client can go on.
        self._record(sent, answer)
        sink.whole(response.status, dict(response.headers), data)

    def _pass_stream(self, sent: "_Sent", response: http.client.HTTPResponse, sink: Sink) -> None:
        reply, error = StreamedReply(), None
        try:
            sink.begin(response.status, dict(response.headers))
            for event in _events(response):
                data = data_of(event)
                chunk = reply.feed(data)
                if reply.has_begun and sent.first_at is None:
                    sent.first_at = time.monotonic()
                if sent.call.wants_usage or not is_usage_alone(chunk):
                    sink.write(event)
            if not reply.has_ended:
                error = "the stream ended before the answer did"
        except TransientError as broken:
            error = f"the stream broke off: {broken}"
        except ClientGoneError:
            self._record(sent, answer_in(reply.completion(), "the client left before the end"))
            raise
        self._record(sent, answer_in(reply.completion(), error))
        # A stream that ended in its own way is passed on so, even if nothing ended in it.
        if error is None or not error.startswith("the stream broke off"):
            sink.end()
        else:
            sink.cut()

    def _record(self, sent: "_Sent", answer: Answer) -> None:
        ended = time.monotonic()
        sent.conversation.add_call(
            kind=CallKind.STEP,
            tools=sent.call.tools,
            started_at=sent.started_at,
            latency_s=ended - sent.began if answer.error is None else None,
            ttft_s=None if sent.first_at is None else sent.first_at - sent.began,
            **sent.call.facts,
            **answer.facts,
        )
        if answer.n_choices > 1:
            sent.conversation.note(n_choices=answer.n_choices)
        self._keep(sent.conversation)

    # --- the arm's own calls ----------------------------------------------------------------------
    def _aside(self, request: AuxRequest, call: ChatCall, conversation: Conversation) -> AuxReply:
        """Make a call for the arm; one that does not fit the window is an empty answer."""
        own = request.messages
        shown = conversation.shown(call.messages, request.edits) if own is None else list(own)
        started_at, began = self._now(), time.monotonic()
        facts: dict[str, Any] = {
            "transient": tuple(request.edits) if own is None else (),
            "messages": None if own is None else tuple(own),
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "started_at": started_at,
        }
        headers: Headers = {}
        status, data = BAD_GATEWAY, b""
        try:
            with self._open(call, call.aside(request, shown)) as response:
                status, headers, data = (
                    response.status,
                    dict(response.headers),
                    read_whole(response),
                )
            answer = (
                Answer(error=error_text(status, data, call.headers))
                if status >= 400
                else answer_in(json_object(data.decode("utf-8", "replace")))
            )
        except (NotSentError, TransientError) as error:
            headers, data = said(f"no answer from the upstream: {error}")
            answer = Answer(error=str(error))
        latency_s = time.monotonic() - began
        index = conversation.add_call(
            kind=request.kind,
            tools=call.tools if own is None else None,
            latency_s=latency_s if answer.error is None else None,
            **facts,
            **answer.facts,
        )
        if answer.error is not None and not answer.error.startswith(OVERFLOW):
            raise NoAnswerError(status if status >= 400 else BAD_GATEWAY, headers, data)
        return AuxReply(
            kind=request.kind,
            content=answer.content or "",
            tool_calls=answer.requested_calls,
            prompt_tokens=answer.usage.get("prompt_tokens") or 0,
            completion_tokens=answer.usage.get("completion_tokens") or 0,
            call_index=index,
        )


class _Sent:
    """A step call under way."""

    def __init__(self, call: ChatCall, conversation: Conversation, started_at: float) -> None:
        self.call, self.conversation, self.started_at = call, conversation, started_at
        self.began = time.monotonic()
        self.first_at: float | None = None


def said(message: str) -> tuple[Headers, bytes]:
    """Return headers and body of an error of the proxy itself, in the interface's form."""
    error = {"message": f"planprune proxy: {message}", "type": "proxy_error", "code": None}
    return {"Content-Type": "application/json"}, json.dumps({"error": error}).encode()


def read_whole(response: http.client.HTTPResponse) -> bytes:
    """Return the body. Raises `TransientError` where it did not come whole."""
    try:
        return response.read()
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(f"the answer broke off: {error!r}") from error


def _events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the events of a stream as they end, and at last what no end followed."""
    splitter = EventSplitter()
    try:
        while piece := response.read1(PIECE_BYTES):
            yield from splitter.feed(piece)
        if response.length:
            raise TransientError(f"{response.length} bytes of the answer did not come")
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(repr(error)) from error
    if splitter.rest:
        yield splitter.rest
