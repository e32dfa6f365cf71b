"""The tokens that values of an arm's parameter lead to on pilot recordings, for budgets.

See docs/methods.md, Budgets.
"""

from collections.abc import Iterable, Sequence

from pipeline.replaying.replay import Replayed, Replayer
from pipeline.spec.arm import ArmSpec, MatchOn
from pipeline.spec.budget import PilotPoint, with_parameter


def pilot_points(
    arm: ArmSpec, values: Iterable[float], replayers: Sequence[Replayer], match_on: MatchOn
) -> list[PilotPoint]:
    """Return the mean tokens over recordings for each value, behavior held fixed.

    Raises:
        ValueError: no recordings.
        BudgetError: the arm has no parameter that sets its budget.
    """
    if not replayers:
        raise ValueError("a pilot needs at least one recording")
    points = []
    for value in values:
        changed = with_parameter(arm, value)
        tokens = [measured(r.replay(changed), match_on) for r in replayers]
        points.append(PilotPoint(value=value, tokens=sum(tokens) / len(tokens)))
    return points


def measured(result: Replayed, match_on: MatchOn) -> float:
    """Return the tokens of a replayed arm over all of its calls, auxiliary ones included.

    Raises:
        ValueError: `removed_tokens`, which replay does not measure.
    """
    prompts = [call.cache.prompt_tokens for call in result.calls]
    match match_on:
        case "mean_prompt":
            return sum(prompts) / len(prompts) if prompts else 0.0
        case "peak":
            return float(max(prompts, default=0))
        case "total_input":
            return float(sum(prompts))
        case "removed_tokens":
            raise ValueError("replay measures no removed tokens; take them from pilot runs")
