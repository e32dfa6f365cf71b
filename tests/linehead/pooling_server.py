"""A real HTTP server with the part of vLLM's pooling API that `features` uses, on a tiny model.

It computes with Transformers, so that what comes over the wire can be compared; a script of
statuses makes it fail first. That vLLM itself answers so is tests/system's to show.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.linehead.extra import need_torch

need_torch()

import torch  # noqa: E402
from transformers import AutoModel  # noqa: E402

from pipeline.linehead.backbone import DTYPES  # noqa: E402


@dataclass
class PoolingServer:
    """What the server answers with, and what it was asked."""

    model: Any
    max_model_len: int
    failures: list[int]
    """Statuses of the next answers, before any good one."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies that were answered."""
    base_url: str = ""
    """The URL that `features` is given."""

    def rows(self, body: dict[str, Any]) -> bytes:
        """Return the states of all tokens of a prompt, as bytes."""
        self.requests.append(body)
        with torch.inference_mode():
            hidden = self.model(torch.tensor([body["input"]])).last_hidden_state[0]
        if body["use_activation"]:
            hidden = torch.nn.functional.normalize(hidden, dim=-1)
        return hidden.to(DTYPES[body["embed_dtype"]]).view(torch.uint8).numpy().tobytes()


@contextlib.contextmanager
def pooling_server(
    backbone: Path, *, failures: Iterable[int] = (), max_model_len: int = 8192
) -> Iterator[PoolingServer]:
    """Serve the states of the backbone in a folder."""
    model = AutoModel.from_pretrained(backbone).eval()
    server = PoolingServer(model=model, max_model_len=max_model_len, failures=list(failures))
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    server.base_url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    with http, ThreadPoolExecutor(1) as thread:
        thread.submit(http.serve_forever, 0.02)
        try:
            yield server
        finally:
            http.shutdown()


def _handler(server: PoolingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = {"data": [{"id": "served", "max_model_len": server.max_model_len}]}
            self._send(200, json.dumps(listed).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if server.failures:
                self._send(server.failures.pop(0), b'{"error": "on purpose"}')
            else:
                self._send(200, server.rows(body))

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    return Handler
