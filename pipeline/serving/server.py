"""A vLLM server of this worker: started, waited for, watched, started again, ended whole.

It runs in a session of its own under `guard`, which ends it when this process is gone. Ready means
that its process lives, `/health` is 200, `/v1/models` names our model and one token came back:
each alone has been seen to be true of a server that did not work. From then on a thread watches
it: a dead process, silence, or requests without tokens for `stall_s` end it at once, so that calls
in flight fail as the server's fault and not as a timeout an hour later.

Does not know what is asked of it; when to start it again is the worker's decision.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pipeline.host.log import say
from pipeline.host.owned_folder import owned_folder
from pipeline.host.process import ChildGroup, start_group
from pipeline.records.failure import ContextOverflowError, ServerError
from pipeline.serving.client import ping_model
from pipeline.serving.command import HOST, located, vllm_argv, vllm_environment
from pipeline.serving.connections import fetch
from pipeline.serving.finding import ServerUnfitError
from pipeline.serving.gpu import missing_gpus, pids_on_gpus
from pipeline.serving.metrics import has_requests, metrics_text, sample_of, tokens_done
from pipeline.serving.parts import CHECKOUT
from pipeline.serving.ports import Lane, is_listening, take_lane
from pipeline.serving.server_log import last_words, size_of
from pipeline.serving.stall import StallRule
from pipeline.spec.model import ModelSpec

STOP_GRACE_S = 15.0
GPU_FREE_S = 60.0
"""How long the driver may take to give back the memory of processes that have ended."""
PING_TIMEOUT_S = 60.0
HEALTH_TIMEOUT_S = 3.0
METRICS_TIMEOUT_S = 10.0
START_POLL_S = 0.25
PORT_TRIES = 4
CACHE_PREFIX = "planprune-vllm-"


class ServerStoppedError(ServerError):
    """The worker was asked to stop while the server was starting."""


class _PortTakenError(Exception):
    """Someone else listens where our server was to."""


class VllmServer:
    """One vLLM server, under the same name on other ports after every restart."""

    proxy = None

    def __init__(
        self,
        model: ModelSpec,
        *,
        log: Path,
        env: Mapping[str, str],
        node: str,
        scratch: Path | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        watch_s: float = 2.0,
    ) -> None:
        """Start the server and return once it answers.

        Args:
            model: of kind `vllm`; relative paths are taken from the checkout.
            log: gets what the server prints; appended to by restarts.
            env: this process's environment.
            node: this node's name.
            scratch: folder on the node's own disk; None: the system's temporary folder.
            should_stop: asked while a start is waited for; True gives it up.
            watch_s: seconds between two looks at a running server.

        Raises:
            ServerError: it did not come up; the message ends with the end of its log.
            ServerStoppedError: `should_stop` said so.
        """
        self.generation = 0
        self.base_url = ""
        self._model = located(model, CHECKOUT)
        self._log, self._env, self._node = log, env, node
        self._should_stop, self._watch_s = should_stop, watch_s
        self._child: ChildGroup | None = None
        self._lane: Lane | None = None
        self._failure: str | None = None
        self._watcher: threading.Thread | None = None
        self._unwatch = threading.Event()
        lacking = missing_gpus(env, model.n_gpus)
        if lacking is not None:
            raise ServerUnfitError(lacking)
        # Of this server alone: compiled kernels that servers shared have been corrupted.
        self._cache = owned_folder(CACHE_PREFIX, scratch)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    @property
    def failure(self) -> str | None:
        """Why the server was given up; None while it is not."""
        return self._failure

    @property
    def session(self) -> int | None:
        """The id of the session in which all its processes live; None when there is none."""
        return None if self._child is None else self._child.pid

    def alive(self) -> bool:
        """Return whether it can be expected to answer."""
        return self._failure is None and self._child is not None and self._child.alive()

    def restart(self) -> None:
        """End what is left of it and start it again on fresh ports.

        Raises:
            ServerError: it has been restarted `max_restarts` times, or does not come up.
        """
        why = self._failure or "its process ended"
        self._end()
        if self.generation >= self._model.serve.max_restarts:
            raise ServerError(
                f"the server of {self._model.name} failed {self.generation + 1} times, last since "
                f"{why}; {last_words(self._log)}"
            )
        self.generation += 1
        self._start()

    def stop(self) -> None:
        """End every process of it, wait for its GPU memory, remove its caches.

        May be called twice.

        Raises:
            ServerError: a process or its GPU memory could not be got rid of.
        """
        try:
            self._end()
        finally:
            shutil.rmtree(self._cache, ignore_errors=True)

    # --- starting ---
    def _start(self) -> None:
        for attempt in range(PORT_TRIES):
            lane = take_lane(start=os.getpid() + 7 * (self.generation + attempt))
            self._lane = lane
            try:
                self._launch(lane)
                self._wait_until_ready(lane.http_port)
            except _PortTakenError:
                self._note(f"port {lane.http_port} was taken by another program; trying another")
                self._end()
                continue
            self._watch()
            return
        raise ServerError(
            f"the server of {self._model.name} lost its port to other programs {PORT_TRIES} times; "
            f"see what runs on {self._node}"
        )

    def _launch(self, lane: Lane) -> None:
        self._failure = None
        self.base_url = f"http://{HOST}:{lane.http_port}/v1"
        argv = vllm_argv(self._model, port=lane.http_port, binds=(str(self._cache),))
        env = vllm_environment(
            self._model,
            base=self._env,
            cache=self._cache,
            internal_port=lane.internal_port,
            node=self._node,
        )
        if not Path(argv[0]).exists() and shutil.which(argv[0]) is None:
            raise ServerError(
                f"model {self._model.name}: no {argv[0]}; make vLLM's environment with "
                "`make serve` (CPU=1 without a GPU), or name it with serve.python"
            )
        guarded = [sys.executable, "-m", "pipeline.serving.guard", *argv]
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            self._child = start_group(
                guarded, env=env, cwd=CHECKOUT, log=self._log, pipe_stdin=True
            )
        except OSError as error:
            raise ServerError(f"the server of {self._model.name} cannot be started: {error}") from (
                error
            )

    def _wait_until_ready(self, port: int) -> None:
        serve = self._model.serve
        started = grew = time.monotonic()
        size, said = -1, "it was not asked yet"
        while True:
            self._check_start(port)
            if self._healthy():
                try:
                    ping_model(self.base_url, self._model.request_name, timeout_s=PING_TIMEOUT_S)
                except (ServerError, ContextOverflowError) as error:
                    said = str(error)
                else:
                    self._check_start(port)
                    return
            now = time.monotonic()
            if (grown := size_of(self._log)) != size:
                size, grew = grown, now
            if now - grew > serve.start_silence_s or now - started > serve.start_timeout_s:
                raise ServerError(
                    f"the server of {self._model.name} was not ready after {now - started:.0f} s, "
                    f"of which its log stood still for {now - grew:.0f} s ({said}); "
                    f"{last_words(self._log)}"
                )
            time.sleep(START_POLL_S)

    def _check_start(self, port: int) -> None:
        """Return if the process that is starting lives and is wanted.

        Raises:
            ServerError: it ended.
            ServerStoppedError: it is not wanted any more.
            _PortTakenError: it ended, and another program listens on its port.
        """
        assert self._child is not None
        if self._should_stop():
            raise ServerStoppedError(
                f"the start of {self._model.name}'s server was given up: the worker is to stop"
            )
        if self._child.alive():
            return
        # Everything of ours is gone, so whoever answers there is someone else.
        self._child.stop(0)
        if is_listening(port):
            raise _PortTakenError
        raise ServerError(
            f"the server of {self._model.name} ended with status {self._child.returncode} before "
            f"it was ready; {last_words(self._log)}"
        )

    def _healthy(self) -> bool:
        try:
            fetch(self.base_url.removesuffix("/v1") + "/health", timeout_s=HEALTH_TIMEOUT_S)
        except (OSError, ValueError):
            return False
        return True

    # --- watching ---
    def _watch(self) -> None:
        assert self._child is not None
        self._unwatch = threading.Event()
        self._watcher = threading.Thread(
            target=self._look_after, args=(self._child, self._unwatch), name="watchdog", daemon=True
        )
        self._watcher.start()

    def _look_after(self, child: ChildGroup, unwatch: threading.Event) -> None:
        stall = StallRule(self._model.serve.stall_s, time.monotonic())
        while not unwatch.wait(self._watch_s):
            reason = None if child.alive() else f"its process ended with status {child.returncode}"
            reason = reason or self._stalled(stall)
            if reason is not None and not unwatch.is_set():
                self._failure = reason
                # At once and hard: what hangs does not obey, and callers are waiting.
                child.stop(0)
                self._note(f"given up, since {reason}; its log is {self._log}")
                return

    def _stalled(self, stall: StallRule) -> str | None:
        """Return why the server counts as hung, None while it does not."""
        try:
            text = metrics_text(self.base_url, timeout_s=min(METRICS_TIMEOUT_S, stall.stall_s))
        except ServerError:
            return stall.silent(time.monotonic())
        sample = sample_of(text)
        reason = stall.seen(tokens_done(sample), has_requests(sample), time.monotonic())
        if reason is None and stall.is_unproven(time.monotonic()):
            # Nothing was asked for long, or an engine hung before it took the first request on.
            try:
                patience_s = min(PING_TIMEOUT_S, stall.stall_s)
                ping_model(self.base_url, self._model.request_name, timeout_s=patience_s)
            except (ServerError, ContextOverflowError) as error:
                return f"it did not answer a probe: {error}"
            stall.proven(time.monotonic())
        return reason

    # --- ending ---
    def _end(self) -> None:
        self._unwatch.set()
        child, self._child = self._child, None
        lane, self._lane = self._lane, None
        try:
            if child is not None:
                pids = {identity.pid for identity in child.members()}
                if not child.stop(0 if self._failure else STOP_GRACE_S):
                    raise ServerError(
                        f"processes of {self._model.name}'s server cannot be killed: "
                        f"{sorted(identity.pid for identity in child.members())} on {self._node}"
                    )
                self._wait_for_gpu(pids)
        finally:
            if lane is not None:
                lane.close()
            if self._watcher is not None and self._watcher is not threading.current_thread():
                self._watcher.join(timeout=STOP_GRACE_S)
                self._watcher = None

    def _wait_for_gpu(self, pids: set[int]) -> None:
        """Return once the driver lists none of `pids` on the job's GPUs.

        Raises:
            ServerError: it still does after a while; a new server would not fit beside them.
        """
        if self._model.n_gpus == 0:
            return
        deadline = time.monotonic() + GPU_FREE_S
        while left := pids & pids_on_gpus(self._env):
            if time.monotonic() > deadline:
                raise ServerError(
                    f"GPU memory of ended processes {sorted(left)} was not freed in "
                    f"{GPU_FREE_S:.0f} s on {self._node}; the node needs a look (nvidia-smi)"
                )
            time.sleep(START_POLL_S)

    def _note(self, text: str) -> None:
        say(f"server of {self._model.name}: {text}")
