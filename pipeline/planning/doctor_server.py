"""What a running model server is found to be, as checks: the conversation, then its cache.

The conversation is the one that a worker holds before its first run, with the tools of the sweep
that the words describe. Whether the cache keeps what stands before an edit is no reason to refuse
a server, but decides how its costs are read.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.host.proxies import proxy_for
from pipeline.planning.doctor import Check, Level, fail, ok, warn
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.serving.client import RetryPolicy, completer_for
from pipeline.serving.finding import Finding
from pipeline.serving.probe import CacheProbe, edited_history_probe
from pipeline.spec.model import ModelSpec
from pipeline.spec.sweep import SweepSpec
from pipeline.worker.server_fit import findings_of
from pipeline.worker.servers import RunningEndpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerReport:
    """What was found; the probe is None where the conversation left nothing to probe."""

    checks: tuple[Check, ...]
    probe: CacheProbe | None


def server_report(spec: SweepSpec, model: ModelSpec, env: Mapping[str, str]) -> ServerReport:
    """Return what is found of the running server at `model.base_url`.

    Raises:
        ServerError: it does not answer.
        ValueError: the environment's proxy cannot be used.
    """
    url = model.base_url or ""
    server = RunningEndpoint(url, proxy_for(url, env) if model.kind == "endpoint" else None)
    checks = [_check(finding) for finding in findings_of(spec, model, server, env)]
    if any(check.level is Level.FAIL for check in checks):
        return ServerReport(checks=tuple(checks), probe=None)
    completer = completer_for(model, url, env, retry=RetryPolicy(max_attempts=2))
    salt = f"doctor-{secrets.token_hex(8)}"
    try:
        probe = edited_history_probe(completer, model, url, salt=salt, proxy=server.proxy)
    except (ServerError, ContextOverflowError) as error:
        checks.append(
            warn("cache", str(error), "this server's costs are those of a plain prefix cache")
        )
        return ServerReport(checks=tuple(checks), probe=None)
    finally:
        completer.close()
    return ServerReport(checks=(*checks, *_cache_checks(model, probe)), probe=probe)


def _check(finding: Finding) -> Check:
    if not finding.fix:
        return ok(finding.what, finding.found)
    level = fail if finding.blocks else warn
    return level(finding.what, finding.found, finding.fix)


def _cache_checks(model: ModelSpec, probe: CacheProbe) -> list[Check]:
    counted_in, block = model.serve.block_size, probe.block_tokens
    if counted_in is not None and block is not None and counted_in != block:
        found = (
            f"lcp_block_tokens would be counted in blocks of {counted_in}, the server has {block}"
        )
        return [warn("cache", found, f"model.serve.block_size={block}")]
    if probe.cache_mode not in ("plain", "unknown") and probe.as_expected is not None:
        interval = probe.state_interval_tokens
        kept = f"every {interval} tokens" if interval else "at the end of each prompt only"
        edited = next((call for call in probe.calls if call.what == "edited"), probe.calls[-1])
        found = (
            f"a hybrid ({probe.cache_mode}) that should keep its state {kept}: of an edited history"
            f" {edited.cached_tokens or 0:,} of {edited.lcp_tokens or 0:,} common tokens are"
            f" cached, {probe.expected(edited) or 0:,} expected (calls.lcp_state_tokens)"
        )
        if probe.as_expected:
            return [ok("cache", found)]
        fix = f"model.serve.state_interval_tokens: a multiple of the block ({block}), or none"
        return [warn("cache", found, fix)]
    if probe.follows_prefix is False:
        fix = "read costs from the report's `reported` rows"
        return [warn("cache", "less is cached than the common prefix of prompts", fix)]
    told = {True: "the common prefix, in whole blocks", None: "its cache behavior is unknown"}
    return [ok("cache", told[probe.follows_prefix])]
