"""A server with the interface of SWE-Pruner v1, on loopback: lines with words asked for stay."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def by_words(body: dict[str, Any]) -> tuple[int, Any]:
    """Keep the lines that hold a long word of the query, blank ones aside, as v1's server does."""
    words = {word.strip("?.,:").lower() for word in body["query"].split() if len(word) > 4}
    lines = body["code"].splitlines()
    kept = [n for n, line in enumerate(lines, 1) if any(w in line.lower() for w in words)]
    return 200, {
        "score": 0.5,
        "pruned_code": "\n".join(lines[n - 1] for n in kept),
        "token_scores": [],
        "kept_frags": kept,
        "origin_token_cnt": 0,
        "left_token_cnt": 0,
        "model_input_token_cnt": 0,
        "error_msg": None,
    }


class PruneServer:
    """Answers `/health` and `/prune`; keeps the bodies it was sent."""

    def __init__(self, answer: Answer = by_words, *, healthy: bool = True) -> None:
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                ok = healthy and self.path == "/health"
                self._send(200 if ok else 503, {"status": "healthy" if ok else "no"})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                status, data = answer(body) if self.path == "/prune" else (404, {})
                self._send(status, data)

            def _send(self, status: int, data: Any) -> None:
                raw = data if isinstance(data, bytes) else json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
