"""What an arm tells the model is what it does: over all arms, tools, prompts and edits.

A field that an arm offers and throws away costs output tokens and makes the model prune what it
believes is saved; a sentence about a plan step where none was completed confounds an ablation.
"""

import json
import re
from collections.abc import Callable, Mapping

import pytest

from pipeline.arms.cleanup_turn import CleanupTurn
from pipeline.spec.arm import ArmSpec
from pipeline.views.policy import AuxReply, AuxRequest, CallKind
from pipeline.views.shown import is_removed
from pipeline.views.trajectory import Part, Trajectory
from tests.context.arms import all_arms, arm
from tests.context.driving import ran, shown
from tests.context.scripts import Act, Ran, planctl, prunes, read, rounds, set_plan

ARMS = {name: a for name, a in all_arms().items() if not name.startswith("delete_")}


def offers(spec: ArmSpec, tool: str) -> bool:
    return any(offered.name == tool for offered in spec.policy.tools)


PRUNING = sorted(name for name, a in ARMS.items() if offers(a, "prune_observations"))
ASKING = [
    name
    for name in PRUNING
    # At its own prices the cached arm finds nothing here that would pay for the question.
    if ARMS[name].policy.has_cleanup and name != "plan_prune_cached"
]
MODES = pytest.mark.parametrize("text_mode", [False, True], ids=["tools", "text"])
FACT = "the parser drops line 42"
PLAN = (
    *(set_plan(3), read("a.py", 200), read("b.py", 200)),
    planctl(("complete", 1), ("start", 2)),
)
MORE = tuple(read(f"{k}.py") for k in range(9))


def answer(request: AuxRequest) -> AuxReply:
    if request.kind is CallKind.CLEANUP:
        return prunes(1, note=FACT)(request)
    said = "notes" if request.kind is CallKind.SUMMARY else ""
    return AuxReply(kind=request.kind, content=said, completion_tokens=5)


def run_of(spec: ArmSpec, *, text_mode: bool) -> Ran:
    return ran(spec, rounds(*PLAN, *MORE), answer, text_mode=text_mode)


def told(spec: ArmSpec, *, text_mode: bool) -> list[str]:
    """Everything that the arm itself says to the model in a run with a plan."""
    run = run_of(spec, text_mode=text_mode)
    cleanups = [r for r in run.requests if r.kind is CallKind.CLEANUP]
    edits = [edit for moment in run.moments for edit in moment.new]
    tools = [] if text_mode else spec.policy.tools
    return [
        *(edit.text.rpartition("\n<output")[2] for r in cleanups for edit in r.edits),
        *(edit.text for edit in edits),
        *(tool.description for tool in tools),
        *(tool.answer(Trajectory(), '{"ids": [1]}').text for tool in spec.policy.tools),
    ]


def waits_for_plan_steps(spec: ArmSpec) -> bool:
    return isinstance(spec.policy, CleanupTurn) and spec.policy.trigger == "plan_step"


def acts_in_ordinary_turns(spec: ArmSpec) -> bool:
    """Whether a call of one of the arm's tools beside other calls takes an output away."""
    values = {"integer": 1, "array": [1], "string": "all is well"}
    for tool in spec.policy.tools:
        arguments = {name: values[schema["type"]] for name, schema in tool.properties.items()}
        call = Act(command=json.dumps(arguments), output="ok", tool=tool.name)
        script = rounds(read("a.py"), read("b.py"), call, read("c.py"))
        run = ran(spec, script, prunes())
        if any(is_removed(m, run.standing) for m in run.trajectory.observations()):
            return True
    return False


def drops_turns(spec: ArmSpec) -> bool:
    return any(e.part is Part.DROPPED for e in run_of(spec, text_mode=False).standing.values())


CLAIMS: Mapping[str, Callable[[ArmSpec], bool]] = {
    r"completed part of your plan|after a plan step is completed": waits_for_plan_steps,
    r"worked on the task for a while|every \d+ turns": lambda a: (
        isinstance(a.policy, CleanupTurn) and a.policy.trigger == "every_k"
    ),
    r"when you are asked": lambda a: a.policy.has_cleanup and not acts_in_ordinary_turns(a),
    r"in any answer": acts_in_ordinary_turns,
    r"plan step": lambda a: (
        isinstance(a.policy, CleanupTurn)
        and (a.policy.plan_step_column or a.policy.trigger == "plan_step")
    ),
    r"prune_observations": lambda a: offers(a, "prune_observations"),
    r"recall": lambda a: offers(a, "recall"),
    r"\bcompress\b": lambda a: offers(a, "compress"),
    r"no longer shown|with the commands": lambda a: drops_turns(a) or offers(a, "compress"),
}
"""Sentence, and the rule that must hold where an arm says it."""


@pytest.mark.parametrize("name", sorted(ARMS))
@MODES
def test_an_arm_says_nothing_that_its_rule_contradicts(name: str, *, text_mode: bool) -> None:
    spec = ARMS[name]
    for text in told(spec, text_mode=text_mode):
        for claim, holds in CLAIMS.items():
            assert holds(spec) or not re.search(claim, text), f"{name} says {claim!r}: {text}"


@pytest.mark.parametrize("name", ASKING)
def test_a_cleanup_says_what_has_just_happened(name: str) -> None:
    spec = ARMS[name]
    texts = told(spec, text_mode=False)
    (opening,) = {t.partition(" Pause coding")[0].splitlines()[-1] for t in texts if "Pause" in t}
    assert (opening == "You have completed part of your plan.") is waits_for_plan_steps(spec)


@pytest.mark.parametrize("name", PRUNING)
def test_a_note_is_offered_where_it_stays_in_the_view_and_nowhere_else(name: str) -> None:
    spec = ARMS[name]
    (tool,) = (t for t in spec.policy.tools if t.name == "prune_observations")
    run = run_of(spec, text_mode=False)
    kept = any(FACT in content for content in shown(run))
    assert set(tool.properties) == ({"ids", "note"} if kept else {"ids"})
    asked = [edit.text for r in run.requests for edit in r.edits]
    assert all((" note " in text) is kept for text in asked)


@pytest.mark.parametrize("name", ["plan_prune", "sham_cleanup", "plan_prune_cached", "every_k"])
def test_the_main_arms_offer_ids_alone(name: str) -> None:
    (tool,) = arm(name).policy.tools
    assert list(tool.schema["function"]["parameters"]["properties"]) == ["ids"]


def test_a_call_outside_the_cleanup_is_told_when_it_may_be_made() -> None:
    by_turns = arm("every_k", every_k=7).policy.tools[0].answer(Trajectory(), "{}")
    assert "which happens every 7 turns" in by_turns.text
    by_steps = arm("plan_prune").policy.tools[0].answer(Trajectory(), "{}")
    assert "which happens after a plan step is completed" in by_steps.text
    assert by_turns.is_error
    assert by_steps.is_error


def test_without_a_plan_the_listing_names_no_plan_steps() -> None:
    spec = arm("every_k", every_k=3)
    run = ran(spec, rounds(*MORE), answer)
    assert run.requests
    assert all("plan step" not in e.text for r in run.requests for e in r.edits)


def test_a_sham_tells_what_its_arm_tells() -> None:
    """It prices the asking, so it says what it does not do: the one exception there is."""
    for mode in (False, True):
        assert (
            told(arm("sham_cleanup"), text_mode=mode)[0]
            == told(arm("plan_prune"), text_mode=mode)[0]
        )
