"""A test script run to its end, with all that it prints kept, whatever the tests do to it.

Owns the script around it, the file that its output goes to and the limit on that. What the output
says is the graders'.
"""

import shlex
from collections.abc import Mapping

from pipeline.grading.verdict import last_line
from pipeline.protocols import CommandResult, Sandbox
from pipeline.records.failure import SandboxError

LOG_LIMIT_BYTES = 64 << 20
"""Longest test log; the longest of the stored real ones has 3 MB. Tests that print more lose their
reader and end, instead of filling the node's disk until their time is up."""
READ_TIMEOUT_S = 60.0
_NO_FOLDER = 97
"""Exit status where there is nothing to write the log to."""


def scratch_in(sandbox: Sandbox) -> str:
    """Return a folder in the sandbox, outside the repository, that no other grading uses."""
    made = sandbox.execute("mktemp -d", timeout_s=READ_TIMEOUT_S)
    folder = last_line(made.output)
    if made.returncode != 0 or not folder.startswith("/"):
        raise SandboxError(f"no temporary folder in the sandbox: {made.output.strip()!r}")
    return folder


def run_script(folder: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the command that runs the evaluation script and keeps all it prints.

    `variables` are set for the script, whose text stays the official one.

    stdout and stderr go through one pipe into a file: one pipe because the start and end markers
    come from `set -x` on stderr, a file because a sandbox bounds what a command may return, and a
    pipe rather than the file itself because a test that opens /dev/stdout anew would truncate a
    file. A process that the tests left behind may hold the pipe open: it is not waited for. Tests
    may also clear the temporary folder that the file is in; it is then written once more.
    """
    where = shlex.quote(folder)
    words = [f"{name}={shlex.quote(value)}" for name, value in (variables or {}).items()]
    bash = " ".join(["env", *words, "/bin/bash"] if words else ["/bin/bash"])
    most_kib = LOG_LIMIT_BYTES // 1024 + 1
    return (
        f"cd {where} && mkfifo stream && : > test_output.txt || exit {_NO_FOLDER}\n"
        "exec 9< test_output.txt\n"
        f"(ulimit -f {most_kib}; exec cat < stream >> test_output.txt) 9<&- & reader=$!\n"
        f'(cd "$OLDPWD" && exec {bash} {where}/eval.sh) > stream 2>&1 < /dev/null 9<&-\n'
        "code=$?\n"
        "for pause in .002 .005 .01 .02 .05 .1 .2 .3 .3; do\n"
        "  kill -0 $reader 2> /dev/null || break\n"
        "  sleep $pause\n"
        "done\n"
        "kill $reader 2> /dev/null\n"
        f"[ -e {where}/test_output.txt ] || {{\n"
        f"  mkdir -p {where} && cat <&9 > {where}/test_output.txt\n"
        "}\n"
        "exit $code\n"
    )


def run_logged(
    sandbox: Sandbox,
    script: str,
    folder: str,
    variables: Mapping[str, str],
    *,
    timeout_s: float,
) -> CommandResult:
    """Return how the evaluation script ended, with the whole of what it printed."""
    sandbox.upload(script.encode(), f"{folder}/eval.sh")
    ran = sandbox.execute(run_script(folder, variables), timeout_s=timeout_s)
    try:
        log = sandbox.download(f"{folder}/test_output.txt", limit_bytes=LOG_LIMIT_BYTES + 1)
    except FileNotFoundError:
        if not ran.timed_out:
            raise SandboxError(f"the test log vanished: {ran.output[-500:]!r}") from None
        log = b""
    return CommandResult(
        output=log[:LOG_LIMIT_BYTES].decode("utf-8", "replace"),
        returncode=ran.returncode,
        timed_out=ran.timed_out,
        limit=ran.limit,
        dropped_bytes=max(0, len(log) - LOG_LIMIT_BYTES),
        wall_s=ran.wall_s,
    )
