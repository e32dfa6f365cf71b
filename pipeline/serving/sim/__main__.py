"""`python -m pipeline.serving.sim`: the simulated agent as a server of its own."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.serving.sim.config import FAULTS, SimConfig
from pipeline.serving.sim.server import run_server


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT or the end of the parent process; return the exit code."""
    args = _parser().parse_args(argv)
    try:
        config = SimConfig(
            recipes=args.recipes,
            served_name=args.served_name,
            host=args.host,
            port=args.port,
            port_file=args.port_file,
            latency_ms=args.latency_ms,
            tokens_per_s=args.tokens_per_s,
            block_size=args.block_size,
            cache_blocks=args.cache_blocks,
            max_model_len=args.max_model_len,
            unrepeatable=args.unrepeatable,
            faults=_faults(args.fault),
            fault_seed=args.fault_seed,
            slow_s=args.slow_s,
            parent_pid=args.parent_pid,
        )
        asyncio.run(_serve(config))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"sim: {error}\n")
        return 2
    return 0


async def _serve(config: SimConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_server(config, stop, _announce)


def _announce(port: int) -> None:
    sys.stderr.write(f"sim: simulated agent (no model) on port {port}\n")


def _faults(words: Sequence[str]) -> dict[str, float]:
    faults = {}
    for word in words:
        name, _, rate = word.partition("=")
        try:
            faults[name] = float(rate)
        except ValueError:
            raise ValueError(f"--fault {word}: write NAME=RATE, such as http500=0.1") from None
    return faults


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.serving.sim",
        description="A SIMULATED coding agent behind an OpenAI-compatible HTTP server: no model, "
        "no weights. It follows recipes and reads again what it needs and no longer sees.",
        epilog="faults: " + "; ".join(f"{name}: {does}" for name, does in FAULTS.items()),
    )
    add = parser.add_argument
    add("--recipes", type=Path, help="JSON file of recipes by instance id")
    add("--served-name", default="sim", help="the model's name (default: sim)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0 (the default): any free port")
    add("--port-file", type=Path, help="where to write the bound port")
    add("--latency-ms", type=float, default=0.0, help="wait before each answer")
    add("--tokens-per-s", type=float, help="speed of writing (default: no wait)")
    add("--block-size", type=int, default=16, help="tokens a block of the prefix cache")
    add("--unrepeatable", type=float, default=0.0, help="share of answers that follow the salt")
    add("--cache-blocks", type=int, default=65_536, help="cache capacity of one salt, in blocks")
    add("--max-model-len", type=int, default=131_072, help="context window, tokens")
    add("--fault", action="append", default=[], metavar="NAME=RATE", help="may be repeated")
    add("--fault-seed", type=int, default=0)
    add("--slow-s", type=float, default=2.0, help="how late a `slow` answer is")
    add("--parent-pid", type=int, help="end when this process is gone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
