"""What a simulated server is told at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FAULTS: Mapping[str, str] = {
    "http500": "answer with HTTP 500",
    "hang": "never answer",
    "slow": "answer `slow_s` seconds late",
    "truncated": "cut the JSON body of the answer in half",
    "bad_arguments": "tool calls whose arguments are no valid JSON",
    "unknown_tool": "tool calls of a tool that was not offered",
    "wrong_ids": "prune calls that name ids which do not exist",
    "empty": "answers without text and without tool calls",
}
"""The faults that can be asked for, by name."""


@dataclass(frozen=True, kw_only=True)
class SimConfig:
    """Everything that decides how one simulated server behaves."""

    recipes: Path | None = None
    """JSON file of recipes; None: every task is met with a short look around."""
    served_name: str = "sim"
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    port_file: Path | None = None
    """Where the bound port is written, whole or not at all."""
    latency_ms: float = 0.0
    """Time before the first token of every answer."""
    tokens_per_s: float | None = None
    """Speed of writing; None: the answer takes no time."""
    block_size: int = 16
    """Tokens a block of the prefix cache."""
    cache_blocks: int = 65_536
    """Capacity of the prefix cache of one salt, in blocks."""
    max_model_len: int = 131_072
    unrepeatable: float = 0.0
    """Share of the answers that follow the run (its salt) beside prompt and seed."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Fault name -> share of the requests that meet it."""
    fault_seed: int = 0
    slow_s: float = 2.0
    parent_pid: int | None = None
    """The server ends when this process is gone."""

    def __post_init__(self) -> None:
        for name, rate in self.faults.items():
            if name not in FAULTS:
                raise ValueError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
            if not 0.0 <= rate <= 1.0:
                raise ValueError(f"fault {name}: the rate {rate} is not between 0 and 1")
        if self.block_size < 1 or self.cache_blocks < 1 or self.max_model_len < 2:
            raise ValueError("block_size, cache_blocks and max_model_len must be positive")
