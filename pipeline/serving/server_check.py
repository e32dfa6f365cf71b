"""Is a server what the configuration says? Asked before the first run.

A server that is not ours may have another model or a smaller window, refuse a field of the body,
drop the oldest messages without a word, or give tool calls back as text. Each is found here for a
few short requests, and named with the key that mends it; believed, each would cost a whole sweep.

Owns what a server says of itself; the conversation with it is `server_talk`'s. Who asks (a worker
before its first run, `doctor`) decides what a finding leads to. What a server's cache makes of
edited histories is `probe`'s.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pipeline.host.proxies import Proxy
from pipeline.serving.client import count_in
from pipeline.serving.connections import fetch
from pipeline.serving.finding import Finding, Offered
from pipeline.serving.server_talk import Client, Conversation
from pipeline.spec.model import ModelSpec

GET_TIMEOUT_S = 10.0

_WINDOW_FIELDS = (
    *("max_model_len", "context_length", "context_window", "max_context_length"),
    *("max_total_tokens", "n_ctx"),
)
"""How servers name the window in `/v1/models`, `/props` (llama.cpp) or `/info` (TGI)."""


def server_findings(
    client: Client,
    model: ModelSpec,
    base_url: str,
    offered: Offered,
    *,
    salt: str,
    proxy: Proxy | None = None,
) -> list[Finding]:
    """Return what a short conversation with the server at `base_url` finds.

    Args:
        client: makes clients of that server; closed here.
        model: as configured.
        base_url: up to and including `/v1`.
        offered: as the sweep's runs send it.
        salt: of this conversation alone.
        proxy: the way to the server, where there is one.

    Raises:
        ServerError: it does not answer at all.
    """
    findings = list(_listed(model, base_url, proxy))
    if any(finding.blocks for finding in findings):
        return findings
    talk = Conversation(client, model, offered, salt)
    try:
        return [*findings, *talk.findings()]
    finally:
        talk.close()


def _listed(model: ModelSpec, base_url: str, proxy: Proxy | None) -> Iterator[Finding]:
    """Yield whether the model is there, and how its window compares with ours."""
    entries = _get(base_url + "/models", proxy).get("data")
    models = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    names = [str(entry["id"]) for entry in models if entry.get("id")]
    name = model.request_name
    own = next((e for e in models if e.get("id") in (name, f"{name}:latest")), None)
    if not names:
        found = f"{base_url}/models lists none, so {name} is taken on trust"
        yield Finding(what="model", found=found, fix="look at the server's own log")
    elif own is None:
        yield Finding(
            what="model",
            found=f"{base_url} serves {', '.join(names[:5])}, not {name}",
            fix=f"model.served_name={names[0]}",
            blocks=True,
        )
    else:
        yield Finding(what="model", found=f"{name} is served")
    root = base_url.rstrip("/").removesuffix("/v1")
    more = [_get(f"{root}/{page}", proxy) for page in ("props", "info")] if own is not None else []
    yield _window_finding(model, _window_in([own, *more]))


def _get(url: str, proxy: Proxy | None) -> dict[str, Any]:
    """Return a JSON object that the server may or may not have; empty where it has none."""
    with suppress(OSError, ValueError):
        found = json.loads(fetch(url, timeout_s=GET_TIMEOUT_S, proxy=proxy))
        return found if isinstance(found, dict) else {}
    return {}


def _window_in(places: Sequence[Mapping[str, Any] | None]) -> int | None:
    for place in places:
        settings = (place or {}).get("default_generation_settings")
        for fields in (place or {}, settings if isinstance(settings, dict) else {}):
            for name in _WINDOW_FIELDS:
                if window := count_in(fields, name):
                    return window
    return None


def _window_finding(model: ModelSpec, window: int | None) -> Finding:
    ours = model.context_length
    if window is None:
        return Finding(what="window", found=f"the server does not say it; {ours:,} is taken")
    if window >= ours:
        return Finding(what="window", found=f"{window:,} tokens, of which {ours:,} are used")
    return Finding(
        what="window",
        found=f"{window:,} tokens are served, and model.context_length is {ours:,}",
        fix=f"model.context_length={window} (and a model.max_tokens below it), or serve more",
        blocks=True,
    )
