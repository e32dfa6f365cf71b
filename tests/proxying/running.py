"""A proxy in this process, a client for it, and what it left in its folder."""

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.proxying.proxy import Proxy, ProxySettings
from pipeline.records.layout import Layout
from pipeline.records.rebuild import messages_of_call, run_tables
from pipeline.records.tables import compact
from pipeline.replay import chosen_arms

KEY = "sk-proj-4f1b0c-secret"


@dataclass
class Running:
    """A proxy that serves."""

    proxy: Proxy
    said: list[str]
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = int(self.proxy.base_url.rpartition(":")[2].removesuffix("/v1"))

    def client(self) -> "Client":
        return Client(self.port)

    def ask(self, messages: Sequence[dict], **fields: object) -> "Answer":
        return self.client().ask(messages, **fields)


@contextmanager
def running(
    results: Path, upstream: str, arm: str = "full_history", **settings: object
) -> Iterator:
    said: list[str] = []
    (spec,) = chosen_arms([arm])
    made = ProxySettings(arm=spec, upstream=upstream, results=results, counter="sim", **settings)
    proxy = Proxy(made, said.append)
    proxy.start()
    try:
        yield Running(proxy, said)
    finally:
        proxy.close()
    compact(Layout(results))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    broken: bool = False
    """The answer did not come whole."""

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def message(self) -> dict:
        return self.json["choices"][0]["message"]

    @property
    def error(self) -> str:
        return self.json["error"]["message"]


class Client:
    """One connection, kept open between requests."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def __del__(self) -> None:
        self.connection.close()

    def ask(self, messages: Sequence[dict], *, instance: str = "", **fields: object) -> Answer:
        body = json.dumps({"model": "sim", "messages": messages, **fields}).encode()
        return self.send(body, path=f"{f'/as/{instance}' if instance else ''}/v1/chat/completions")

    def send(
        self,
        body: bytes | Iterator[bytes],
        path: str = "/v1/chat/completions",
        method: str = "POST",
        headers: dict | None = None,
    ) -> Answer:
        named = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        self.connection.request(method, path, body, {**named, **(headers or {})})
        response = self.connection.getresponse()
        broken = False
        try:
            data = response.read()
        except http.client.IncompleteRead as error:
            data, broken = error.partial, True
        heads = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, heads, data, broken)


def runs(results: Path) -> list:
    """Return all rows of every run, in the order in which they began."""
    layout = Layout(results)
    import pyarrow.parquet as pq

    rows = pq.read_table(layout.table_file("runs"), columns=["run_id", "started_at"]).to_pylist()
    ordered = sorted(rows, key=lambda row: row["started_at"])
    return [run_tables(row["run_id"], layout) for row in ordered]


def the_run(results: Path):
    (run,) = runs(results)
    return run


def extra(run) -> dict:
    return json.loads(run.run["extra"])


def rebuilt(results: Path, run, call_index: int) -> list[dict]:
    return messages_of_call(run.run["run_id"], call_index, Layout(results))


SYSTEM = {"role": "system", "content": "You fix bugs."}


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(content: str | None = "Let me see.", *calls: dict, **more: object) -> dict:
    made = {"tool_calls": list(calls)} if calls else {}
    return {"role": "assistant", "content": content, **made, **more}


def result(call_id: str, text: object) -> dict:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


TASK = [SYSTEM, user("Repair the parser.")]
