"""Small recorded runs, made of real messages, for the tests of the line head."""

from collections.abc import Sequence

from pipeline.linehead.recorded_run import RecordedRun
from pipeline.linehead.samples import Sample
from pipeline.views.trajectory import Message, ToolCall, Trajectory

Step = tuple[str, str, str]
"""What the agent says, its command, and the output."""


def run_of(
    *steps: Step,
    run_id: str = "run",
    patch: str = "",
    instance: str = "a__b-1",
    tool: str = "bash",
) -> RecordedRun:
    """Return a run of steps with `tool`."""
    messages = [
        Message(index=0, step_index=0, role="system", content="You fix bugs."),
        Message(index=1, step_index=0, role="user", content="Fix it."),
    ]
    for number, (said, command, output) in enumerate(steps, start=1):
        call = ToolCall(id=f"c{number}", name=tool, arguments=f'{{"command": "{number}"}}')
        messages.append(
            Message(
                index=len(messages),
                step_index=number,
                role="assistant",
                content=said,
                tool_calls=(call,),
            )
        )
        messages.append(
            Message(
                index=len(messages),
                step_index=number,
                role="tool",
                tool=tool,
                tool_call_id=call.id,
                command=command,
                content=output,
            )
        )
    trajectory = Trajectory()
    trajectory.append(messages)
    return RecordedRun(
        run_id=run_id,
        instance_id=instance,
        model="m",
        trajectory=trajectory,
        patch=patch,
        tools=None,
        source=f"{run_id}.traj.json",
        source_sha256="0" * 64,
    )


def lines(*texts: str) -> str:
    """Return the texts as lines."""
    return "".join(f"{text}\n" for text in texts)


def many_lines(n: int, word: str = "line") -> str:
    """Return `n` distinct lines."""
    return lines(*(f"{word} number {i}" for i in range(n)))


def samples_in(run: RecordedRun, indices: Sequence[int] | None = None) -> list[Sample]:
    """Return the outputs of a run, or those at `indices`."""
    places = [m.index for m in run.trajectory.observations()] if indices is None else indices
    return [Sample(run=run, message_index=i) for i in places]
