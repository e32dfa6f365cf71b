"""Looks at the model server's metrics while it runs: for the `server` table, and for admission.

A thread asks every few seconds. The newest answer tells whether the server has room for another
run; every nth sample is journaled. A server that does not answer, or has no metrics, is
nobody's failure here: whether it is alive is its own watcher's business.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping

from pipeline.records.failure import DiskError, ServerError
from pipeline.records.grade_record import ServerSample
from pipeline.records.journal import Journal
from pipeline.serving.gpu import gpu_sample
from pipeline.serving.metrics import may_start_another, metrics_text, sample_of
from pipeline.worker.servers import ModelServer

LOOK_EVERY_S = 2.0
KEEP_EVERY = 5
"""Looks for each sample that is kept."""
BATCH = 30
"""Samples for each frame in the journal."""
TIMEOUT_S = 5.0


class ServerSampler:
    """The thread that looks at one worker's server."""

    def __init__(
        self,
        server: ModelServer,
        journal: Journal,
        *,
        worker: str,
        env: Mapping[str, str],
        now: Callable[[], float],
    ) -> None:
        """Prepare; `now` gives Unix seconds."""
        self._server, self._journal = server, journal
        self._worker, self._env, self._now = worker, env, now
        self._latest: ServerSample | None = None
        self._pending: list[ServerSample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def has_room(self) -> bool:
        """Return whether the server can take another run, as far as it tells."""
        return may_start_another(self._latest)

    def __enter__(self) -> "ServerSampler":
        """Start looking."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop looking, and put what is left into the journal."""
        self._stop.set()
        self._thread.join(timeout=2 * TIMEOUT_S)
        self._flush()

    def _run(self) -> None:
        looks = 0
        while not self._stop.is_set():
            self._latest = self._look()
            if self._latest is not None and looks % KEEP_EVERY == 0:
                self._pending.append(self._latest)
            looks += 1
            if len(self._pending) >= BATCH:
                self._flush()
            self._stop.wait(LOOK_EVERY_S)

    def _look(self) -> ServerSample | None:
        try:
            text = metrics_text(
                self._server.base_url, timeout_s=TIMEOUT_S, proxy=self._server.proxy
            )
        except ServerError:
            return None
        gpus = gpu_sample(self._env)
        return sample_of(
            text,
            worker=self._worker,
            sampled_at=self._now(),
            gpu_util=gpus.util if gpus else None,
            gpu_mem=gpus.mem_bytes if gpus else None,
        )

    def _flush(self) -> None:
        """Journal what is pending; on a full disk it waits for the next time."""
        with contextlib.suppress(DiskError):
            self._journal.append_samples(self._pending)
            self._pending = []
