"""The model server that a worker's runs talk to: started here, or already running.

Owns which kind of server a model needs and the little that a worker asks of one. How vLLM is
started and watched is `pipeline.serving.server`; the simulated agent is a process of ours.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.benchmarks.toy.recipes import recipe_for
from pipeline.host.owned_folder import owned_folder
from pipeline.host.process import ChildGroup, start_group
from pipeline.host.proxies import Proxy, proxy_for
from pipeline.records.failure import ServerError
from pipeline.spec.model import ModelSpec, SimSpec

START_TIMEOUT_S = 60.0
STOP_GRACE_S = 3.0
SIM_PREFIX = "planprune-sim-"
_POLL_S = 0.01


class ModelServer(Protocol):
    """A server as a worker sees it."""

    @property
    def base_url(self) -> str:
        """Up to and including `/v1`; another one after a restart."""
        ...

    @property
    def proxy(self) -> Proxy | None:
        """The way to it, where there is one."""
        ...

    @property
    def generation(self) -> int:
        """How often it was restarted: calls to an earlier generation get no answer any more."""
        ...

    def alive(self) -> bool:
        """Return whether it can be expected to answer."""
        ...

    def restart(self) -> None:
        """Start it again.

        Raises:
            ServerError: it has been restarted as often as is allowed, or does not come up.
        """
        ...

    def stop(self) -> None:
        """Stop it, whole. May be called twice."""
        ...


class RunningEndpoint:
    """A server that someone else runs: it is there or it is not."""

    generation = 0

    def __init__(self, base_url: str, proxy: Proxy | None = None) -> None:
        self.base_url, self.proxy = base_url, proxy

    def alive(self) -> bool:
        """Return True: only its answers tell."""
        return True

    def restart(self) -> None:
        """Refuse.

        Raises:
            ServerError: always.
        """
        raise ServerError(f"{self.base_url} is not ours to restart")

    def stop(self) -> None:
        """Leave it alone."""


class SimServer:
    """The simulated agent, in a process group of its own that ends with us."""

    proxy = None

    def __init__(
        self, model: ModelSpec, sim: SimSpec, *, recipes: Mapping[str, Any], log: Path
    ) -> None:
        """Start the server and return once it answers.

        Raises:
            ServerError: it did not come up.
        """
        self._model, self._sim, self._log = model, sim, log
        self._folder = owned_folder(SIM_PREFIX, None)
        self._recipes = self._folder / "recipes.json"
        self._recipes.write_text(json.dumps(dict(recipes)), encoding="utf-8")
        self.generation = 0
        self.base_url = ""
        self._child: ChildGroup | None = None
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def alive(self) -> bool:
        """Return whether its process runs."""
        return self._child is not None and self._child.alive()

    def restart(self) -> None:
        """Start it again on a fresh port.

        Raises:
            ServerError: it has been restarted `max_restarts` times, or does not come up.
        """
        self._end()
        if self.generation >= self._model.serve.max_restarts:
            raise ServerError(
                f"the server of {self._model.name} ended {self.generation + 1} times; "
                f"its log is {self._log}"
            )
        self.generation += 1
        self._start()

    def stop(self) -> None:
        """End the whole group and remove its files. May be called twice."""
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop(STOP_GRACE_S)

    def _start(self) -> None:
        port_file = self._folder / f"port-{self.generation}"
        argv = sim_argv(self._model, self._sim, self._recipes, port_file, parent_pid=os.getpid())
        self._child = start_group(argv, log=self._log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not port_file.exists():
            if not self._child.alive() or time.monotonic() > deadline:
                raise ServerError(f"the simulated server did not come up; its log is {self._log}")
            time.sleep(_POLL_S)
        self.base_url = f"http://127.0.0.1:{int(port_file.read_text())}/v1"


def sim_argv(
    model: ModelSpec, sim: SimSpec, recipes: Path, port_file: Path, *, parent_pid: int
) -> list[str]:
    """Return the command line of the simulated server."""
    argv = [sys.executable, "-m", "pipeline.serving.sim"]
    argv += ["--recipes", str(recipes), "--served-name", model.request_name]
    argv += ["--port-file", str(port_file), "--parent-pid", str(parent_pid)]
    argv += ["--block-size", str(sim.block_size), "--max-model-len", str(model.context_length)]
    argv += ["--latency-ms", str(sim.latency_ms), "--unrepeatable", str(sim.unrepeatable)]
    if sim.tokens_per_s is not None:
        argv += ["--tokens-per-s", str(sim.tokens_per_s)]
    for name, rate in sim.faults.items():
        argv += ["--fault", f"{name}={rate}"]
    return argv


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a server is started, and until when that is wanted."""

    log: Path
    env: Mapping[str, str]
    node: str
    scratch: Path | None
    """On the node's own disk; None: the system's temporary folder."""
    should_stop: Callable[[], bool]


def start_server(
    model: ModelSpec, place: Place, rows: Mapping[str, Mapping[str, Any]]
) -> ModelServer:
    """Return the server for `model`, answering.

    Args:
        model: which server.
        place: where.
        rows: the sweep's instances, by id; the simulated agent is told how to go about them.

    Raises:
        ServerError: it did not come up.
    """
    match model.kind:
        case "sim":
            with contextlib.suppress(OSError):
                place.log.parent.mkdir(parents=True, exist_ok=True)
            sim = model.sim or SimSpec()
            return SimServer(model, sim, recipes=recipes_for(rows), log=place.log)
        case "endpoint":
            if not model.base_url:
                raise ServerError(f"model {model.name}: give the server with model.base_url=URL")
            return RunningEndpoint(model.base_url, proxy_for(model.base_url, place.env))
        case "vllm":
            from pipeline.serving.server import VllmServer

            return VllmServer(
                model,
                log=place.log,
                env=place.env,
                node=place.node,
                scratch=place.scratch,
                should_stop=place.should_stop,
            )


def recipes_for(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the simulated agent's recipes for those instances that have one.

    The agent recognises an instance by its recipe's summary, which must occur in the task; where
    the benchmark's own does not, the task's first line stands for it. Around instances without a
    recipe it only looks, and submits nothing.
    """
    recipes = {}
    for instance_id, row in rows.items():
        recipe = recipe_for(row)
        if recipe is None:
            continue
        task = str(row["problem_statement"])
        summary = recipe["summary"]
        recipes[instance_id] = {
            **recipe,
            "summary": summary if summary in task else task.strip().splitlines()[0],
        }
    return recipes
