"""What a policy asks the server along with a step call, over real HTTP."""

import json

from pipeline.arms.swe_pruner_pro import SwePrunerPro
from pipeline.replaying.treatment import Verdict, treatment_of
from pipeline.spec.arm import ArmSpec
from pipeline.spec.policies import policy_for
from pipeline.views.trajectory import Trajectory
from tests.agent.rollouts import rollout
from tests.context.test_line_prune import KEPT, LONG, answer_for
from tests.fakes import Message, Reply, WordCounter, bash, completion, says, submits

ARM = ArmSpec(name="swe_pruner_pro", policy=SwePrunerPro(min_chars=80), plan=False)


def server_with_a_head(*replies: Reply):
    """Answer in order; where the request asks for line scores, they come in the same response."""
    rest = iter(replies)

    def answer(body: Message) -> Reply:
        reply = next(rest)
        data = json.loads(completion(body, reply))
        asked = body.get("kv_transfer_params", {}).get("line_scores")
        if asked is not None:
            outputs = [answer_for(text) for text in asked["texts"]]
            data["kv_transfer_params"] = {"line_scores": {"outputs": outputs, "n_errors": 0}}
        return Reply(body=json.dumps(data).encode())

    return answer


def test_scores_come_with_the_step_and_prune_from_the_call_after():
    script = [says("a", bash("cat f")), says("b", bash("true")), says("c", bash("ls")), submits()]
    results = {"cat f": LONG, "true": "ok"}
    outcome, requests = rollout(server_with_a_head(*script), arm=ARM, results=results)
    assert ["kv_transfer_params" in r for r in requests] == [False, True, False, False]
    contents = [r["messages"][3]["content"] for r in requests[1:]]
    text = requests[1]["kv_transfer_params"]["line_scores"]["texts"][0]
    assert text == contents[0]
    assert LONG in contents[0]
    assert contents[1] == contents[2]
    assert "(filtered 3 lines)\nkeep 4\n(filtered 3 lines)\nkeep 8\n" in contents[1]
    assert KEPT.splitlines()[1] in contents[1]
    (decision,) = outcome.decisions
    assert decision.kind == "line_scores"
    assert json.loads(decision.content)["messages"] == [3]
    kept = [json.loads(c.server_answer) for c in outcome.calls if c.server_answer is not None]
    assert kept == [{"kind": "line_scores", **json.loads(decision.content)}]


def test_a_server_without_a_head_leaves_every_output_whole():
    script = [says("a", bash("cat f")), says("b", bash("true")), submits()]
    outcome, requests = rollout(script, arm=ARM, results={"cat f": LONG, "true": "ok"})
    assert LONG in requests[2]["messages"][3]["content"]
    assert outcome.failure_class == "ok"


def test_a_run_whose_server_never_had_scores_is_not_of_its_arm():
    script = [says("a", bash("cat f")), says("b", bash("true")), submits()]
    outcome, _ = rollout(script, arm=ARM, results={"cat f": LONG, "true": "ok"})
    trajectory = Trajectory(decisions=list(outcome.decisions))
    trajectory.append(outcome.messages)
    moments = [call.message_count for call in outcome.calls if call.kind == "step"]
    policy = policy_for(ARM, seed=0, count_tokens=WordCounter(), context_length=10_000)
    found = treatment_of(policy, trajectory, moments, [])
    assert found.verdict is Verdict.UNTREATED
    assert (found.n_judged, found.n_pruner_errors) == (1, 1)
