"""Tasks that depend on each other."""

from taskgraph.cache import Cache, fingerprint
from taskgraph.graph import CycleError, Graph, Task
from taskgraph.scheduler import Outcome, Scheduler, State

__all__ = ["Cache", "CycleError", "Graph", "Outcome", "Scheduler", "State", "Task", "fingerprint"]
