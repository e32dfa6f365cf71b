"""The entry point of this package: the line pruner of an arm, loaded once for all runs of a worker.

Arms that use the same model in the same way share it. What a pruner's libraries raise on an output
becomes a `PrunerError` here, so that one output is shown whole and the run goes on.
"""

import threading
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.arms.line_pruning import LinePruning, LocalPruning
from pipeline.protocols import LinePruner, PrunerError
from pipeline.pruners.extra import missing_parts
from pipeline.records.failure import NodeError
from pipeline.spec.arm import ArmSpec
from pipeline.views.kept_lines import count_lines
from pipeline.views.policy import PruneRequest

if TYPE_CHECKING:
    from pipeline.pruners.local_model import Head, LocalModel

FAILURES = (
    *(RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(OSError, MemoryError),
)
"""What a model may raise on an output; a device without memory left is a `RuntimeError`."""


_SAMPLE = PruneRequest(
    message_index=0,
    history=(),
    command="cat sample.py",
    text="".join(f"def sample_{n}(value):\n    return value + {n}\n\n" for n in range(40)),
    query="Which sample adds 7?",
)


class PrunerPool:
    """The line pruners of a sweep's arms in this process."""

    def __init__(self, arms: Iterable[ArmSpec]) -> None:
        """Load what the arms need; arms without a line pruner need nothing.

        Raises:
            NodeError: a pruner cannot be had here; the message says what to do.
        """
        self._lock = threading.Lock()
        self._models: dict[tuple[Any, ...], LocalModel] = {}
        self._pruners: list[tuple[LinePruning, Guarded]] = []
        for arm in arms:
            if isinstance(arm.policy, LinePruning):
                self._add(arm.name, arm.policy)

    def of(self, arm: ArmSpec) -> LinePruner | None:
        """Return the pruner of `arm`, its tuned parameter as it is now; None where it has none.

        Raises:
            NodeError: its server is gone. A run must not begin without it: it would end as one of
                the whole history, and be taken for the arm's.
        """
        if not isinstance(arm.policy, LinePruning):
            return None
        with self._lock:
            known = next((p for spec, p in self._pruners if spec == arm.policy), None)
            # A budget changes a parameter and never the model.
            pruner = known or self._add(arm.name, arm.policy)
        try:
            pruner.check()
        except PrunerError as error:
            raise _unusable(arm.name, error) from error
        return pruner

    def _add(self, name: str, spec: LinePruning) -> "Guarded":
        for parameter, problem in missing_parts(spec):
            named = problem.replace("arms.ARM.", f"arms.{name}.")
            raise NodeError(f"arms.{name}.policy.{parameter}: {named}")
        try:
            pruner = Guarded(self._load(spec))
            # One that loads and cannot judge (no memory, another interface) is found out now.
            pruner.prune(_SAMPLE)
        except PrunerError as error:
            raise _unusable(name, error) from error
        self._pruners.append((spec, pruner))
        return pruner

    def _load(self, spec: LinePruning) -> LinePruner:
        # Each kind's pruner is in the module of that name; those of local ones import PyTorch.
        module = import_module(f"pipeline.pruners.{spec.kind}")
        pruner: LinePruner = module.load(spec, self._model)
        return pruner

    def _model(self, spec: LocalPruning, head: "Head") -> "LocalModel":
        from pipeline.pruners.local_model import LocalModel

        key = (head, spec.model, spec.revision, spec.path, spec.device, spec.dtype)
        if key not in self._models:
            self._models[key] = LocalModel(spec, head)
        return self._models[key]


class Guarded:
    """A pruner whose failures all come out as `PrunerError`."""

    def __init__(self, pruner: LinePruner) -> None:
        self._pruner = pruner

    def check(self) -> None:
        """Return if the pruner can be asked; only one that is a server may have gone away.

        Raises:
            PrunerError: it has.
        """
        check = getattr(self._pruner, "check", None)
        if check is not None:
            check()

    def prune(self, request: PruneRequest) -> Sequence[bool] | None:
        """Return which lines stay; None where there is no reason to prune.

        Raises:
            PrunerError: the pruner failed, or decided for another number of lines.
        """
        try:
            kept = self._pruner.prune(request)
        except FAILURES as error:
            raise PrunerError(f"{type(error).__name__}: {error}") from error
        n_lines = count_lines(request.text)
        if kept is not None and len(kept) != n_lines:
            raise PrunerError(f"{len(kept)} decisions for {n_lines} lines")
        return kept


def _unusable(arm: str, error: PrunerError) -> NodeError:
    return NodeError(f"the line pruner of arm {arm} cannot be used: {error}")
