"""What a command submits, from its bytes in a real sandbox to the run's outcome."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.agent.rollout import RunOutcome
from pipeline.protocols import WHOLE_LIMIT_BYTES, Sandbox
from pipeline.records.failure import FailureClass
from pipeline.records.patch import patch_bytes
from pipeline.sandbox.limits import Limits
from pipeline.sandbox.local import LocalSandboxes
from tests.agent.rollouts import ROW, agent_spec, rollout
from tests.fakes import Reply, bash, says, submits


def materialise(_row: Mapping[str, Any], folder: Path) -> None:
    (folder / "caf\udce9.txt").write_bytes(b"caf\xe9\r\n\0")


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    limits = Limits(output_bytes=10_000)
    box = LocalSandboxes(tmp_path / "root", materialise, limits=limits).start({}, purpose="rollout")
    yield box
    box.stop()


def run(sandbox: Sandbox, *replies: Reply) -> RunOutcome:
    outcome, _ = rollout(replies, sandbox=sandbox)
    return outcome


def test_a_patch_longer_than_an_output_may_be_is_submitted_whole(sandbox: Sandbox) -> None:
    outcome = run(sandbox, submits("yes 'a line of a patch' | head -n 600000"))
    assert outcome.failure_class is FailureClass.OK
    assert outcome.patch == "a line of a patch\n" * 600_000
    assert len(outcome.messages[-1].content) < 11_000


def test_a_patch_is_submitted_byte_for_byte_whatever_its_encoding(sandbox: Sandbox) -> None:
    outcome = run(sandbox, submits("{ ls; cat *.txt; }"))
    assert patch_bytes(outcome.patch) == b"caf\xe9.txt\ncaf\xe9\r\n\0"


def test_a_patch_over_the_limit_is_a_class_of_its_own_with_its_size(sandbox: Sandbox) -> None:
    outcome = run(sandbox, submits(f"head -c {WHOLE_LIMIT_BYTES + 1} /dev/zero"))
    assert outcome.failure_class is FailureClass.SUBMITTED_OVERSIZE
    assert outcome.patch == ""
    assert outcome.oversize_patch_bytes == WHOLE_LIMIT_BYTES + 1
    assert f"{WHOLE_LIMIT_BYTES + 1:,} bytes" in (outcome.failure or "")


def test_a_command_with_a_nul_byte_is_not_run_and_the_model_is_told(sandbox: Sandbox) -> None:
    """The byte was once cut out, and what remained was another command."""
    command = "echo one > made\0.txt"
    outcome = run(sandbox, says("", bash(command)), says("", bash("ls")), submits("true"))
    told, listed = (m for m in outcome.messages if m.command in (command, "ls"))
    assert "not run: it holds a NUL byte (character 16)" in told.content
    assert told.returncode == 126
    assert "made" not in listed.content


def test_a_command_with_half_a_surrogate_pair_is_not_run_and_the_model_is_told(
    sandbox: Sandbox,
) -> None:
    half = says("", bash("touch caf\udce9-2.txt"))
    outcome = run(sandbox, half, says("", bash("ls")), submits("true"))
    assert "half of a surrogate pair" in (outcome.calls[0].error or "")
    assert outcome.calls[0].lone_surrogates == 1
    listed = next(m for m in outcome.messages if m.command == "ls")
    assert "-2.txt" not in listed.content


def test_bytes_of_an_output_that_are_no_utf8_are_shown_and_counted(sandbox: Sandbox) -> None:
    outcome = run(sandbox, says("", bash(r"ls; printf 'ok \303\251'")), submits("true"))
    listed = next(m for m in outcome.messages if m.is_observation)
    assert "caf\ufffd.txt\nok \u00e9" in listed.content
    assert listed.undecodable_bytes == 1


def test_an_answer_is_the_text_after_the_sentinel_and_no_patch(sandbox: Sandbox) -> None:
    answering = agent_spec(submit="answer")
    outcome, _ = rollout([submits("cat *.txt; echo 42")], agent=answering, sandbox=sandbox)
    assert (outcome.answer, outcome.patch) == ("caf\ufffd\r\n\0" + "42\n", "")
    assert outcome.failure_class is FailureClass.OK


def test_an_agent_that_answered_nothing_submitted_nothing(sandbox: Sandbox) -> None:
    answering = agent_spec(submit="answer")
    outcome, _ = rollout([submits("true")], agent=answering, sandbox=sandbox)
    assert outcome.failure_class is FailureClass.SUBMITTED_EMPTY
    assert outcome.answer == ""


def test_an_agent_that_answers_leaves_no_patch_at_a_limit(sandbox: Sandbox) -> None:
    answering = agent_spec(submit="answer", step_limit=1)
    script = [says("", bash("echo x > new"))]
    outcome, _ = rollout(script, agent=answering, sandbox=sandbox)
    assert outcome.failure_class is FailureClass.LIMIT_STEPS
    assert (outcome.answer, outcome.limit_patch) == (None, None)


WORK = "mkdir -p out; echo *.log > .gitignore; echo 7 > out/a.log; rm caf*; git init -q x"


def test_what_a_run_did_where_there_is_no_repository_is_submitted_as_a_diff(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """Ignored files are part of it: nothing says here which files are only built."""
    script = [says("", bash(WORK)), submits("true")]
    outcome, _ = rollout(script, agent=agent_spec(submit="diff"), sandbox=sandbox)
    fresh = LocalSandboxes(tmp_path / "fresh", materialise).start({}, purpose="grade")
    fresh.upload(patch_bytes(outcome.patch), "/tmp/patch")
    applied = fresh.execute("git apply /tmp/patch && ls -A && cat out/a.log", timeout_s=20)
    fresh.stop()
    assert applied.output.split() == [".gitignore", "out", "7"]


def test_where_git_cannot_say_what_a_run_did_it_is_our_failure(sandbox: Sandbox) -> None:
    """It was once a run that submitted nothing, which counts against its arm."""
    sandbox.upload(b"no folder", "/tmp/.first-state")
    agent = agent_spec(submit="diff")
    outcome, _ = rollout([submits("true")], agent=agent, sandbox=sandbox)
    assert outcome.failure_class is FailureClass.INFRA_SANDBOX
    assert "install git in the image" in (outcome.failure or "")


def test_a_run_can_submit_its_commits_alone(sandbox: Sandbox) -> None:
    git = "git -c user.name=a -c user.email=a@localhost"
    begin = f"git init -q && git add -A && {git} commit -qm first"
    assert sandbox.execute(begin, timeout_s=20).returncode == 0
    commit = f"git checkout -qb work; echo 1 > kept; git add kept; {git} commit -qm kept"
    script = [says("", bash(f"{commit}; echo 2 > left; echo 3 >> kept")), submits("true")]
    outcome, _ = rollout(script, agent=agent_spec(submit="commits"), sandbox=sandbox)
    assert [line for line in outcome.patch.splitlines() if line.startswith("+")] == [
        "+++ b/kept",
        "+1",
    ]


@pytest.mark.parametrize(("of_the_row", "of_the_agent"), [(30.0, 900.0), (900.0, 30.0)])
def test_the_shorter_of_the_rows_and_the_agents_time_limit_ends_a_run(
    sandbox: Sandbox, of_the_row: float, of_the_agent: float
) -> None:
    outcome, _ = rollout(
        lambda _: says("", bash("true")),
        agent=agent_spec(wall_limit_s=of_the_agent, step_limit=50),
        row={**ROW, "wall_limit_s": of_the_row},
        sandbox=sandbox,
    )
    assert outcome.failure_class is FailureClass.LIMIT_TIME
