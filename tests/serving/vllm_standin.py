"""Takes vLLM's arguments and serves the simulated agent: for tests of a server's life in seconds.

Like vLLM it is several processes: an "engine" that ignores SIGTERM, and the HTTP server. What it is
to do wrong comes as a flag in `serve.flags`; a file named there is made when it does it, so that
it does it once.
"""

import argparse
import pathlib
import socket
import stat
import subprocess
import sys
import time

from pipeline.serving.sim import SimConfig, serve

ENGINE = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def program(folder: pathlib.Path) -> pathlib.Path:
    """Return what to name as `serve.python`."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.serving.vllm_standin "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="vllm_standin")
    parser.add_argument("-m", required=True)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--say", default="standin starts")
    parser.add_argument("--exit", type=int)
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--chatter", action="store_true")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    options, _ = parser.parse_known_args()
    say(options.say)
    if options.exit is not None:
        sys.exit(options.exit)
    while options.never_ready:
        if options.chatter:
            say("still loading")
        time.sleep(0.05)
    # As vLLM: the port is bound early, and one that is taken ends the program.
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind((options.host, options.port))
    probe.close()
    subprocess.Popen([sys.executable, "-c", ENGINE])
    serve(
        SimConfig(
            served_name=options.served_model_name,
            port=options.port,
            latency_ms=options.latency_ms,
        )
    )
    time.sleep(600)


if __name__ == "__main__":
    main()
