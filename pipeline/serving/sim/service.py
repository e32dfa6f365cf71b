"""What each endpoint answers. Knows JSON and the agent; knows no sockets."""

import json
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from xxhash import xxh3_64_hexdigest

from pipeline.serving.sim.brain import Question, answer
from pipeline.serving.sim.config import SimConfig
from pipeline.serving.sim.faults import FaultDice, spoiled, with_bad_arguments
from pipeline.serving.sim.metrics import SimMetrics
from pipeline.serving.sim.prefix_cache import PrefixCache
from pipeline.serving.sim.prompt import PromptEncoder
from pipeline.serving.sim.recipe import RecipeBook, load_recipes
from pipeline.serving.sim.speech import Reply, as_tool_call
from pipeline.serving.sim.stream import EVENTS, stream_of

JSON = "application/json"
OWNER = "planprune-simulation"
"""`owned_by` of the model: a simulation says that it is one."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """An HTTP answer, and how long it is held back."""

    status: int
    body: bytes
    content_type: str = JSON
    delay_s: float = 0.0
    never: bool = False
    """The answer is never sent (a hanging server)."""


class BadRequestError(Exception):
    """The request cannot be served; the message is for the client."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class SimService:
    """The endpoints of one server. Not thread-safe: one event loop calls it."""

    def __init__(self, config: SimConfig) -> None:
        self._config = config
        self._book = load_recipes(config.recipes) if config.recipes else RecipeBook()
        self._encoder = PromptEncoder()
        self._cache = PrefixCache(block_size=config.block_size, blocks_per_salt=config.cache_blocks)
        self._dice = FaultDice(config)
        self.metrics = SimMetrics()
        self._endpoints: Mapping[tuple[str, str], Callable[[bytes], Response]] = {
            ("GET", "/health"): lambda _: Response(status=200, body=b""),
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/v1/chat/completions"): self._chat,
        }

    def respond(self, method: str, path: str, body: bytes) -> Response:
        """Return the answer to one HTTP request; errors are answers too."""
        endpoint = self._endpoints.get((method, path.partition("?")[0]))
        if endpoint is None:
            return _error(404, f"no endpoint {method} {path} on this simulated server")
        try:
            return endpoint(body)
        except BadRequestError as error:
            return _error(error.status, str(error))

    def _models(self, _: bytes) -> Response:
        config = self._config
        card = {
            "id": config.served_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": OWNER,
            "root": config.served_name,
            "max_model_len": config.max_model_len,
        }
        return _json({"object": "list", "data": [card]})

    def _metrics(self, _: bytes) -> Response:
        text = self.metrics.exposition(self._config.served_name)
        return Response(status=200, body=text.encode(), content_type="text/plain; version=0.0.4")

    def _tokenize(self, body: bytes) -> Response:
        request = _object(body)
        if isinstance(request.get("prompt"), str):
            ids = self._encoder.text_ids(request["prompt"])
        else:
            ids = self._encoder.prompt_ids(_messages(request), _tools_text(request))
        count, limit = len(ids), self._config.max_model_len
        return _json({"count": count, "max_model_len": limit, "tokens": ids.tolist()})

    def _chat(self, body: bytes) -> Response:
        request = _object(body)
        self._refuse_unserved(request)
        faults = self._dice.cast(body)
        if "hang" in faults:
            return Response(status=200, body=b"", never=True)
        if "http500" in faults:
            return _error(500, "injected fault: http500")
        prompt = self._encoder.prompt_ids(_messages(request), _tools_text(request))
        limit = self._room(request, len(prompt))
        message, finish = self._message(request, body, faults, limit)
        completion = self._encoder.answer_ids(message)[:limit]
        completed = self._completion(request, body, message, finish, prompt, completion)
        text = stream_of(completed, request) if request.get("stream") else _text(completed)
        if "truncated" in faults:
            text = text[: len(text) // 2]
        delay_s = self._delay_s(len(completion)) + self._config.slow_s * ("slow" in faults)
        self.metrics.requests += 1
        self.metrics.busy_s += delay_s
        kind = EVENTS if request.get("stream") else JSON
        return Response(status=200, body=text, content_type=kind, delay_s=delay_s)

    def _refuse_unserved(self, request: Mapping[str, Any]) -> None:
        model = request.get("model")
        if model not in (None, self._config.served_name):
            raise BadRequestError(f"The model `{model}` does not exist.", status=404)
        if request.get("n") not in (None, 1):
            raise BadRequestError("n must be 1 on this simulated server")

    def _room(self, request: Mapping[str, Any], prompt_tokens: int) -> int:
        """Return how many tokens the answer may have."""
        window = self._config.max_model_len
        wanted = request.get("max_completion_tokens") or request.get("max_tokens")
        if wanted is not None and (not isinstance(wanted, int) or wanted < 1):
            raise BadRequestError(f"max_tokens must be at least 1, got {wanted}")
        if prompt_tokens + (wanted or 1) > window:
            raise BadRequestError(
                f"This model's maximum context length is {window} tokens. However, you requested "
                f"{wanted or 1} output tokens and your prompt contains {prompt_tokens} input "
                f"tokens, for a total of {prompt_tokens + (wanted or 1)} tokens. Please reduce "
                "the length of the input prompt or the number of requested output tokens."
            )
        return wanted or window - prompt_tokens

    def _message(
        self, request: Mapping[str, Any], body: bytes, faults: frozenset[str], limit: int
    ) -> tuple[dict[str, Any], str]:
        """Return the assistant message and the finish reason."""
        question = Question(
            messages=_messages(request),
            tools=request.get("tools") or (),
            tool_choice=request.get("tool_choice"),
            seed=self._seed(request, body),
            extra=request,
        )
        reply = spoiled(answer(question, self._book), faults)
        message = _chat_message(reply, xxh3_64_hexdigest(body))
        if "bad_arguments" in faults:
            message = with_bad_arguments(message)
        if len(self._encoder.answer_ids(message)) > limit:
            return self._cut(reply, limit), "length"
        return message, "tool_calls" if message["tool_calls"] else "stop"

    def _seed(self, request: Mapping[str, Any], body: bytes) -> int:
        """Return the request's seed, or one of its own where the answer is not to come again."""
        seed = int(request.get("seed") or 0)
        # The body holds the salt, which is the run's.
        drawn = Random(xxh3_64_hexdigest(body))
        return drawn.getrandbits(31) if drawn.random() < self._config.unrepeatable else seed

    def _cut(self, reply: Reply, limit: int) -> dict[str, Any]:
        """Return what of a reply fits: its first words, without the actions."""
        if reply.reasoning is None:
            return _chat_message(Reply(content=self._first(reply.content, limit)), "")
        thought = Reply(content="", reasoning=self._first(reply.reasoning, limit))
        return _chat_message(thought, "")

    def _first(self, text: str, n_tokens: int) -> str:
        words = text.split(" ")
        while len(words) > 1 and len(self._encoder.text_ids(" ".join(words))) > n_tokens:
            words = words[: len(words) * 3 // 4]
        return " ".join(words)

    def _completion(
        self,
        request: Mapping[str, Any],
        body: bytes,
        message: Mapping[str, Any],
        finish: str,
        prompt: "array[int]",
        completion: "array[int]",
    ) -> dict[str, Any]:
        """Return the chat completion, after passing prompt and answer through the cache."""
        salt = str(request.get("cache_salt") or "")
        found = self._cache.look_up(salt, prompt)
        self._cache.add(salt, prompt + completion, found.chain)
        self._count(len(prompt), found.hit_tokens, len(completion))
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish,
        }
        reasoning = message["reasoning"]
        reasoning_tokens = len(self._encoder.text_ids(reasoning)) if reasoning else 0
        completed = {
            "id": f"chatcmpl-{xxh3_64_hexdigest(body)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._config.served_name,
            "choices": [choice],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": len(completion),
                "total_tokens": len(prompt) + len(completion),
                "prompt_tokens_details": {"cached_tokens": found.hit_tokens},
                "completion_tokens_details": {
                    "reasoning_tokens": min(reasoning_tokens, len(completion))
                },
            },
        }
        if request.get("return_token_ids"):
            completed["prompt_token_ids"] = prompt.tolist()
            choice["token_ids"] = completion.tolist()
        return completed

    def _count(self, prompt_tokens: int, hit_tokens: int, completion_tokens: int) -> None:
        metrics = self.metrics
        metrics.prompt_tokens += prompt_tokens
        metrics.generation_tokens += completion_tokens
        metrics.cache_queries += prompt_tokens
        metrics.cache_hits += hit_tokens

    def _delay_s(self, completion_tokens: int) -> float:
        speed = self._config.tokens_per_s
        writing_s = completion_tokens / speed if speed else 0.0
        return self._config.latency_ms / 1000 + writing_s


def _chat_message(reply: Reply, digest: str) -> dict[str, Any]:
    calls = [as_tool_call(act, f"call_{digest}_{i}") for i, act in enumerate(reply.acts)]
    return {
        "role": "assistant",
        "content": reply.content or (None if calls else ""),
        "reasoning": reply.reasoning,
        "refusal": None,
        "tool_calls": calls,
    }


def _object(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(request, dict):
        raise BadRequestError("the body must be a JSON object")
    return request


def _messages(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadRequestError("`messages` must be a list of objects")
    if not messages:
        raise BadRequestError("`messages` must not be empty")
    return messages


def _tools_text(request: Mapping[str, Any]) -> str:
    tools = request.get("tools")
    return json.dumps(tools) if tools else ""


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _json(value: object) -> Response:
    return Response(status=200, body=_text(value))


def _error(status: int, message: str) -> Response:
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
    error = {"message": message, "type": kind, "param": None, "code": status}
    return Response(status=status, body=json.dumps({"error": error}).encode())
