"""A real HTTP server with the part of vLLM's pooling API that `features` uses, on a tiny model.

It computes with Transformers, so that what comes over the wire can be compared; a script of
statuses makes it fail first. That vLLM itself answers so is tests/system's to show.
"""

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.linehead.extra import need_torch

need_torch()

import torch  # noqa: E402
from transformers import AutoModel  # noqa: E402

from pipeline.linehead.backbone import DTYPES  # noqa: E402


class PoolingServer:
    """Serves the states of the backbone in a folder."""

    def __init__(
        self, backbone: Path, *, failures: Iterable[int] = (), max_model_len: int = 8192
    ) -> None:
        self.model = AutoModel.from_pretrained(backbone).eval()
        self.requests: list[dict[str, Any]] = []
        """Bodies that were answered."""
        self.failures = list(failures)
        """Statuses of the next answers, before any good one."""
        self.max_model_len = max_model_len
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def base_url(self) -> str:
        """The URL that `features` is given."""
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

    def rows(self, body: dict[str, Any]) -> bytes:
        """Return the states of all tokens of a prompt, as bytes."""
        self.requests.append(body)
        with torch.inference_mode():
            hidden = self.model(torch.tensor([body["input"]])).last_hidden_state[0]
        if body["use_activation"]:
            hidden = torch.nn.functional.normalize(hidden, dim=-1)
        return hidden.to(DTYPES[body["embed_dtype"]]).view(torch.uint8).numpy().tobytes()


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
