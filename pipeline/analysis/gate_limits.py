"""Whether a limit that should not bind ended runs, and more of them in one arm than in another."""

from collections.abc import Iterator, Sequence

from pipeline.analysis.problem import Problem
from pipeline.analysis.tally import TallyRow
from pipeline.records.failure import FailureClass

MAX_LIMIT_SHARE = 0.005
"""Limits are not meant to bind: more runs than this ended by the wall limit, or by the window in
one arm but not in another, and they did."""


def wall_limit(tally: Sequence[TallyRow]) -> list[Problem]:
    """Return arms of which the wall limit ended too many runs."""
    return [
        Problem(
            code="wall_limit",
            model=row.model,
            agent=row.agent,
            arms=(row.arm,),
            sentence=f"the wall limit ended {row.limit_time} of {row.done} runs of {row.where}",
            remedy="raise agent.wall_limit_s and run them again: arms with slow calls lose by it",
        )
        for row in tally
        if row.done and row.limit_time / row.done > MAX_LIMIT_SHARE
    ]


def window_limit(tally: Sequence[TallyRow], *, blocks: bool) -> Iterator[Problem]:
    """Yield, by model and agent, a window that ended runs of one arm more often than of another."""
    for model, agent in dict.fromkeys((row.model, row.agent) for row in tally):
        own = (r for r in tally if (r.model, r.agent) == (model, agent) and r.done)
        arms = sorted(own, key=_window_share)
        if arms and _window_share(arms[-1]) - _window_share(arms[0]) > MAX_LIMIT_SHARE:
            most, least = (
                f"{row.endings[_LIMIT_CONTEXT]} of {row.done} runs of {row.arm}"
                for row in (arms[-1], arms[0])
            )
            yield Problem(
                code="window",
                model=model,
                agent=agent,
                sentence=f"the window of {model} ({agent}) ended {most}, but {least}",
                remedy="raise the model's context_length and run them again; where the window is "
                "what is studied, plan for it: analysis.window_may_bind=true",
                blocks=blocks,
            )


_LIMIT_CONTEXT = FailureClass.LIMIT_CONTEXT.value


def _window_share(row: TallyRow) -> float:
    return row.endings[_LIMIT_CONTEXT] / row.done
