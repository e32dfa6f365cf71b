"""Hidden states from a stock vLLM server that pools nothing: one row a token.

    vllm serve MODEL --runner pooling --convert embed --pooler-config.task token_embed

The states are those after the final norm, not normalised (`use_activation` off), so that they
equal those of Transformers up to rounding. Such a server does not use its prefix cache: outputs
whose prompts continue each other are asked for in one request. In memory are one prompt's states.
Needs PyTorch to hold them.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from pipeline.linehead.backbone import DTYPES, loaded_tokenizer, require_model, revision_of
from pipeline.linehead.prompts import Prompt
from pipeline.linehead.settings import FeatureJob
from pipeline.records.failure import ServerError
from pipeline.serving.connections import Connections, NotSentError, TransientError

CONNECT_TIMEOUT_S = 10.0
N_ATTEMPTS = 4
FIRST_WAIT_S = 1.0

SERVE = (
    "start it with: vllm serve MODEL --runner pooling --convert embed "
    "--pooler-config.task token_embed"
)


@dataclass(slots=True)
class ServedBackbone:
    """A model in a vLLM server."""

    connections: Connections
    served_name: str
    tokenizer: Any
    config: Any
    wire_dtype: str
    sleep: Callable[[float], None] = time.sleep
    n_computed: int = 0

    def states(self, prompts: Iterable[Prompt]) -> Iterator[tuple[Prompt, Tensor]]:
        """Yield every prompt with the states of its output's tokens.

        Raises:
            ServerError: the server fails, or gives something else than one row a token.
        """
        for group in continued(prompts):
            rows = self._rows(group[-1].ids)
            for prompt in group:
                # A copy: a slice would keep the whole answer in memory.
                yield prompt, rows[prompt.output.start : prompt.output.end].clone()

    def close(self) -> None:
        """Close the connection."""
        self.connections.close()

    def _rows(self, ids: tuple[int, ...]) -> Tensor:
        """Return the states of all tokens of a prompt."""
        body = {
            "model": self.served_name,
            "input": list(ids),
            "task": "token_embed",
            "use_activation": False,
            "add_special_tokens": False,
            "encoding_format": "bytes_only",
            "embed_dtype": self.wire_dtype,
            "endianness": "little",
        }
        data = answer_of(
            self.connections, "POST", "/pooling", json.dumps(body).encode(), sleep=self.sleep
        )
        dtype, width = DTYPES[self.wire_dtype], self.config.get_text_config().hidden_size
        if len(data) != len(ids) * width * dtype.itemsize:
            raise ServerError(
                f"the server sent {len(data)} bytes for {len(ids)} tokens of {width} numbers in "
                f"{self.wire_dtype}; is it the backbone, and does it pool nothing? {SERVE}"
            )
        self.n_computed += len(ids)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(len(ids), width)


def served_backbone(
    job: FeatureJob, *, sleep: Callable[[float], None] = time.sleep
) -> ServedBackbone:
    """Return the backbone behind `base_url`; its tokenizer and configuration come from disk.

    Raises:
        ValueError: no `base_url`, no such model here, or prompts may be longer than what the
            server takes.
        ServerError: the server does not answer.
    """
    if job.base_url is None:
        raise ValueError(f"source=vllm needs base_url=http://HOST:PORT/v1; {SERVE}")
    require_model(job)
    root = job.base_url.rstrip("/").removesuffix("/v1")
    connections = Connections(root, CONNECT_TIMEOUT_S, job.request_timeout_s, None)
    (served, *_) = json.loads(answer_of(connections, "GET", "/v1/models", None, sleep=sleep))[
        "data"
    ]
    limit = served.get("max_model_len")
    if limit is not None and job.max_prompt_tokens > limit:
        raise ValueError(
            f"max_prompt_tokens is {job.max_prompt_tokens}, the server takes {limit}: lower the "
            "one, or raise --max-model-len"
        )
    return ServedBackbone(
        connections=connections,
        served_name=served["id"],
        tokenizer=loaded_tokenizer(job),
        config=AutoConfig.from_pretrained(job.backbone, local_files_only=True, **revision_of(job)),
        wire_dtype=job.stored_dtype,
        sleep=sleep,
    )


def continued(prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
    """Yield the prompts in order, in groups of which the last begins with all the others."""
    group: list[Prompt] = []
    for prompt in prompts:
        if group and prompt.ids[: len(group[-1].ids)] != group[-1].ids:
            yield group
            group = []
        group.append(prompt)
    if group:
        yield group


def answer_of(
    connections: Connections,
    method: str,
    path: str,
    body: bytes | None,
    *,
    sleep: Callable[[float], None],
) -> bytes:
    """Return the body of a good answer; failures of the server are asked again a few times.

    Raises:
        ServerError: none came, or the request is refused.
    """
    failure = ""
    for attempt in range(N_ATTEMPTS):
        if attempt:
            sleep(FIRST_WAIT_S * 2 ** (attempt - 1))
        try:
            status, data = connections.request(method, path, body)
        except (NotSentError, TransientError) as error:
            failure = str(error)
            continue
        if status == 200:
            return data
        failure = f"HTTP {status}: {data[:400].decode('utf-8', 'replace')}"
        if status < 500 and status not in (408, 429):
            raise ServerError(f"{connections.where} refuses {path}: {failure}; {SERVE}")
    raise ServerError(f"{connections.where} gives no answer to {path}: {failure}")
