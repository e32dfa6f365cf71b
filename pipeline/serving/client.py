"""One completion from an OpenAI-compatible server: the request's bytes, the reply, the retries.

Owns the HTTP client. Only failures of our side are repeated (no connection, 5xx, 429, a timeout,
a torn answer), with jitter and within a bound, and not at all once the server is known to be gone.
Connections persist, one a thread. Does not know mini, policies, or how a server is started.
"""

import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.host.proxies import Proxy, proxy_for
from pipeline.protocols import ChatReply, ChatRequest
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.records.full_window import full_window_of
from pipeline.serving.connections import Connections, NotSentError, TransientError
from pipeline.spec.model import ModelSpec
from pipeline.views.policy import RequestedToolCall

MAX_SALT_CHARS = 128
_NOT_IN_A_SALT = frozenset("@/\\\0")


class RequestRefusedError(ServerError):
    """The server refuses the request as such: a configuration error, which no retry mends."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long a failing server is asked again."""

    max_attempts: int = 6
    total_s: float = 600.0
    """No attempt starts later than this after the first."""
    first_wait_s: float = 0.5
    """Doubled after every failure, times a random factor between 0.5 and 1."""
    max_wait_s: float = 30.0


class HttpCompleter:
    """A `Completer` over HTTP. May be shared by threads."""

    def __init__(
        self,
        model: ModelSpec,
        base_url: str,
        *,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
        server_alive: Callable[[], bool] = lambda: True,
        connect_timeout_s: float = 10.0,
        rng: random.Random | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        proxy: Proxy | None = None,
    ) -> None:
        """Prepare requests; nothing is connected yet.

        Args:
            model: names the model, its sampling and its timeout.
            base_url: up to and including `/v1`.
            api_key: sent as a bearer token.
            retry: bounds of the retries.
            server_alive: asked after a failure; False ends the retries at once.
            connect_timeout_s: limit of connecting; an answer may take `model.request_timeout_s`.
            rng: source of the jitter.
            now: Unix time, for `started_at`.
            clock: monotonic, for durations.
            sleep: waits between attempts.
            proxy: the way to the server, where there is one.
        """
        self._pool = Connections(
            base_url, connect_timeout_s, model.request_timeout_s, api_key, clock, proxy
        )
        self._fixed = _fixed_fields(model)
        self._spelling = model.body
        self._temperature = model.sampling.temperature
        # vLLM leaves the count out on a miss, and we start it with the count switched on.
        self._no_count_is_a_miss = model.kind == "vllm"
        self._retry = retry or RetryPolicy()
        self._server_alive, self._rng = server_alive, rng or random.Random()
        self._now, self._clock, self._sleep = now, clock, sleep

    def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply.

        Raises:
            ServerError: no answer after every retry, or the server is gone or refuses.
            ContextOverflowError: the prompt does not fit the window.
        """
        body = self.body_of(request)
        first = self._clock()
        n_failed_sent = 0
        for attempt in range(1, self._retry.max_attempts + 1):
            started_at, started = self._now(), self._clock()
            try:
                status, data = self._pool.post("/chat/completions", body)
                latency_s = self._clock() - started
                return self._chat_reply(status, data, started_at, latency_s, n_failed_sent)
            except NotSentError as error:
                failure: Exception = error
            except TransientError as error:
                failure = error
                n_failed_sent += 1
            self._wait_or_give_up(failure, attempt, first)
        raise AssertionError("unreachable: the last attempt gives up")

    def close(self) -> None:
        """Close all connections; no call may be in flight."""
        self._pool.close()

    def body_of(self, request: ChatRequest) -> bytes:
        """Return the bytes of `request` as this server is sent them."""
        fields: dict[str, Any] = {"seed": request.seed, "max_tokens": request.max_tokens}
        temperature = self._temperature if request.temperature is None else request.temperature
        if temperature is not None:
            fields["temperature"] = temperature
        if request.cache_salt:
            fields["cache_salt"] = accepted_salt(request.cache_salt)
        if request.tool_choice is not None:
            fields["tool_choice"] = request.tool_choice
        fields |= request.extra
        if isinstance(request.tool_choice, Mapping) and "structured_outputs" in self._fixed:
            # A named tool constrains the answer already; vLLM refuses a second constraint.
            fields.setdefault("structured_outputs", None)
        tools = b"" if request.tools == b"[]" else b',"tools":' + request.tools
        fields = self._fixed | fields
        for name, other in self._spelling.items():
            if name in fields:
                value = fields.pop(name)
                if other is not None:
                    fields[other] = value
        head = json.dumps(fields, ensure_ascii=False).encode()
        return b"".join((head[:-1], tools, b',"messages":[', b",".join(request.messages), b"]}"))

    def _wait_or_give_up(self, failure: Exception, attempt: int, first: float) -> None:
        retry = self._retry
        if not self._server_alive():
            raise ServerError(f"the model server is gone: {failure}") from failure
        wait_s = min(retry.first_wait_s * 2 ** (attempt - 1), retry.max_wait_s)
        wait_s *= 0.5 + self._rng.random() / 2
        if attempt >= retry.max_attempts or self._clock() - first + wait_s > retry.total_s:
            raise ServerError(
                f"no answer from {self._pool.where} after {attempt} attempts: {failure}; see the"
                " server's log"
            ) from failure
        self._sleep(wait_s)

    def _chat_reply(
        self, status: int, data: bytes, started_at: float, latency_s: float, n_failed_sent: int
    ) -> ChatReply:
        reply = _reply_of(status, data)
        try:
            return self._reply_in(reply, started_at, latency_s, n_failed_sent)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # An answer without its parts is the server's fault, and never the agent's.
            raise TransientError(
                f"the answer is no chat completion ({error!r}): {_shortened(data)}"
            ) from error

    def _reply_in(
        self, reply: Mapping[str, Any], started_at: float, latency_s: float, n_failed_sent: int
    ) -> ChatReply:
        choice = reply["choices"][0]
        message, usage = choice["message"], reply["usage"]
        prompt_details = usage.get("prompt_tokens_details") or {}
        completion_details = usage.get("completion_tokens_details") or {}
        cached = count_in(prompt_details, "cached_tokens")
        prompt, completion = count_in(usage, "prompt_tokens"), count_in(usage, "completion_tokens")
        if prompt is None or completion is None:
            raise ValueError(f"usage without its counts: {usage}")
        content = _text_of(message.get("content"))
        reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
        calls = tuple(
            _tool_call(call, number) for number, call in enumerate(message.get("tool_calls") or ())
        )
        in_text = len(_LONE_SURROGATE.findall(content)) + len(_LONE_SURROGATE.findall(reasoning))
        return ChatReply(
            content=_clean(content),
            reasoning=_clean(reasoning) or None,
            tool_calls=calls,
            lone_surrogates=in_text + sum(call.lone_surrogates for call in calls),
            finish_reason=choice.get("finish_reason"),
            prompt_tokens=prompt,
            cached_tokens=0 if cached is None and self._no_count_is_a_miss else cached,
            completion_tokens=completion,
            reasoning_tokens=count_in(completion_details, "reasoning_tokens"),
            prompt_token_ids=reply.get("prompt_token_ids"),
            completion_token_ids=choice.get("token_ids"),
            latency_s=latency_s,
            # Each repeated request had this prompt; whether it was computed is not known.
            retry_tokens=n_failed_sent * prompt,
            started_at=started_at,
            server_params=reply.get("kv_transfer_params"),
        )


def completer_for(
    model: ModelSpec, base_url: str, env: Mapping[str, str], **settings: Any
) -> HttpCompleter:
    """Return a client of `model`'s server with the key and the proxy that `env` has for it.

    A server that we started is always reached directly; only an endpoint may lie behind a proxy.

    Args:
        model: as served.
        base_url: up to and including `/v1`.
        env: environment variables.
        settings: further arguments of `HttpCompleter`.

    Raises:
        ValueError: the environment's proxy cannot be used.
    """
    key = env.get(model.api_key_env) if model.api_key_env else None
    proxy = proxy_for(base_url, env) if model.kind == "endpoint" else None
    return HttpCompleter(model, base_url, api_key=key, proxy=proxy, **settings)


def ping_model(base_url: str, name: str, *, timeout_s: float = 10.0) -> None:
    """Return once the server lists `name` and has completed one token with it.

    Raises:
        ServerError: it does not; the message says what it did instead.
    """
    pool = Connections(base_url, timeout_s, timeout_s, None)
    try:
        listed = _reply_of(*pool.request("GET", "/models", None), needs=("data",))
        names = [str(entry.get("id")) for entry in listed["data"]]
        if name not in names:
            raise ServerError(f"{base_url} serves {', '.join(names) or 'nothing'}, not {name}")
        body = {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}
        _reply_of(*pool.post("/chat/completions", json.dumps(body).encode()))
    except (NotSentError, TransientError, ContextOverflowError) as error:
        raise ServerError(f"{base_url} does not answer for {name}: {error}") from error
    finally:
        pool.close()


# --- requests ------------------------------------------------------------------------------------
def _fixed_fields(model: ModelSpec) -> dict[str, Any]:
    """Return the body fields that no call changes."""
    sampling = {k: v for k, v in asdict(model.sampling).items() if v is not None}
    fields: dict[str, Any] = {"model": model.request_name, **sampling}
    if model.chat_template_kwargs:
        fields["chat_template_kwargs"] = dict(model.chat_template_kwargs)
    if model.return_token_ids:
        fields["return_token_ids"] = True
    return fields | dict(model.extra_body)


def accepted_salt(salt: str) -> str:
    """Return `salt`, or a hash of it where vLLM would refuse it and with it the request."""
    if len(salt) <= MAX_SALT_CHARS and not set(salt) & _NOT_IN_A_SALT:
        return salt
    return hashlib.sha256(salt.encode()).hexdigest()


# --- answers -------------------------------------------------------------------------------------
def _reply_of(
    status: int, data: bytes, needs: tuple[str, ...] = ("choices", "usage")
) -> dict[str, Any]:
    if status >= 400 and (window := full_window_of(status, data)) is not None:
        raise ContextOverflowError(_shortened(data), window=window)
    if status >= 500 or status in (408, 429):
        raise TransientError(f"HTTP {status}: {_shortened(data)}")
    if status >= 400:
        raise RequestRefusedError(
            f"the model server refuses the request (HTTP {status}): {_shortened(data)}; check the"
            " model's configuration"
        )
    if status >= 300:
        raise RequestRefusedError(
            f"the model server sends requests elsewhere (HTTP {status}), which is not followed; "
            "give that address as model.base_url"
        )
    try:
        reply = json.loads(data)
    except ValueError as error:
        raise TransientError(f"the answer is no JSON: {_shortened(data)}") from error
    if not isinstance(reply, dict) or not all(reply.get(name) for name in needs):
        if isinstance(reply, dict) and reply.get("error"):
            # Gateways answer 200 and put the error of the server behind them into the body.
            window = full_window_of(None, data)
            if window is not None:
                raise ContextOverflowError(_shortened(data), window=window)
        raise TransientError(f"the answer lacks {' or '.join(needs)}: {_shortened(data)}")
    return reply


def count_in(fields: Mapping[str, Any], name: str) -> int | None:
    """Return a count of tokens, also one in a text or with a point; None for anything else."""
    try:
        count = float(fields[name])
    except (KeyError, TypeError, ValueError):
        return None
    return int(count) if count.is_integer() and count >= 0 else None


def _text_of(content: Any) -> str:
    """Return a message's content, which may come in parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _shortened(data: bytes) -> str:
    text = data[:600].decode("utf-8", "replace").strip()
    return text if len(data) <= 600 else text + " ..."


def _tool_call(call: Mapping[str, Any], number: int) -> RequestedToolCall:
    function = call["function"]
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False) if arguments is not None else ""
    arguments = _unescaped(arguments)
    return RequestedToolCall(
        id=str(call.get("id") or f"call_{number}"),
        name=_clean(str(function.get("name") or "")),
        arguments=_clean(arguments),
        lone_surrogates=len(_LONE_SURROGATE.findall(arguments)),
    )


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _unescaped(text: str) -> str:
    """Return JSON text with its lone surrogates as such: whoever parses it meets them."""
    if "\\u" not in text:
        return text
    try:
        plain = json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return plain if _LONE_SURROGATE.search(plain) else text


def _clean(text: str) -> str:
    """Return `text` without lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
