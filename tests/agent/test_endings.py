"""How runs end: by the agent, at a limit, or for a failure that is not the agent's."""

from collections import Counter

from pipeline.agent.run_diff import run_diff_command
from pipeline.records.failure import FailureClass, SandboxError
from tests.agent.rollouts import (
    agent_spec,
    model_spec,
    rollout,
)
from tests.fakes import FIRST_COMMIT, bash, planctl, says, submits

LIMIT_DIFF_COMMAND = run_diff_command(FIRST_COMMIT)
MARK = "== diff of the run ==\n"


def test_an_empty_submission_has_a_class_of_its_own():
    outcome, _ = rollout([submits()], patch="\n")
    assert outcome.failure_class is FailureClass.SUBMITTED_EMPTY


def test_the_step_limit_ends_a_run_and_its_diff_is_kept_aside():
    outcome, _ = rollout(
        lambda _: says("", bash("ls")),
        agent=agent_spec(step_limit=4),
        results={LIMIT_DIFF_COMMAND: f"{MARK}diff --git a/y b/y\n"},
    )
    assert outcome.failure_class is FailureClass.LIMIT_STEPS
    assert outcome.exit_status == "LimitsExceeded"
    assert len(outcome.calls) == 4
    assert outcome.patch == ""
    assert outcome.limit_patch == "diff --git a/y b/y\n"


def test_a_limit_without_changes_has_no_diff():
    outcome, _ = rollout(
        lambda _: says("", bash("ls")),
        agent=agent_spec(step_limit=1),
        results={LIMIT_DIFF_COMMAND: MARK},
    )
    assert outcome.limit_patch is None


def test_the_wall_limit_ends_a_run():
    outcome, _ = rollout(lambda _: says("", bash("ls")), agent=agent_spec(wall_limit_s=20.0))
    assert outcome.failure_class is FailureClass.LIMIT_TIME
    assert outcome.exit_status == "TimeExceeded"


def test_a_prompt_that_no_longer_fits_ends_the_run_as_limit_context():
    body = b'{"error": {"message": "This model\'s maximum context length is 100 tokens."}}'

    def script(request):
        if len(request["messages"]) > 3:
            return says(status=400, body=body)
        return says("", bash("ls"))

    outcome, requests = rollout(script, results={LIMIT_DIFF_COMMAND: f"{MARK}diff\n"})
    assert outcome.failure_class is FailureClass.LIMIT_CONTEXT
    assert outcome.limit_patch == "diff\n"
    assert outcome.calls[-1].prompt_tokens is None
    assert "maximum context length" in outcome.calls[-1].error
    # Less room for the answer was tried before the window was called full.
    assert [r["max_tokens"] for r in requests[1:]] == [4096, 2048, 1024, 512, 256, 128, 64]


def window_of(limit):
    """Return a script with a window of `limit` tokens: a message is 100, and the server says so."""

    def script(request):
        prompt = 100 * len(request["messages"])
        if prompt + request["max_tokens"] > limit:
            total = prompt + request["max_tokens"]
            said = (
                f"maximum context length is {limit} tokens. However, you requested {total} tokens"
            )
            return says(status=400, body=f'{{"error": {{"message": "{said}"}}}}'.encode())
        return says("", bash("ls"), usage={"prompt_tokens": prompt})

    return script


def test_a_refusals_numbers_set_the_answers_length_at_once_and_are_remembered():
    outcome, requests = rollout(window_of(1000), model=model_spec(max_tokens=2000))
    asked = [(len(r["messages"]), r["max_tokens"]) for r in requests]
    assert asked[:2] == [(2, 2000), (2, 800)]
    # From then on no step asks for more than was left, and what our estimate of a new message was
    # short of costs one refusal.
    assert max(cap for _, cap in asked[2:]) < 800
    assert max(Counter(n for n, _ in asked).values()) == 2
    assert outcome.failure_class is FailureClass.LIMIT_CONTEXT
    assert outcome.exit_status == "ContextWindowExceeded"


def test_a_smaller_window_is_remembered_from_what_fitted_where_nothing_says_its_size():
    def script(request):
        prompt = 100 * len(request["messages"])
        if prompt + request["max_tokens"] > 1300:
            body = b'{"error": {"type": "exceed_context_size_error"}}'
            return says(status=400, body=body)
        return says("", bash("ls"), usage={"prompt_tokens": prompt})

    _, requests = rollout(script, model=model_spec(max_tokens=4000), agent=agent_spec(step_limit=3))
    assert [r["max_tokens"] for r in requests[:3]] == [4000, 2000, 1000]
    # 200 + 2000 did not fit: the next step does not ask for as much again.
    assert max(r["max_tokens"] for r in requests[3:]) < 2000


def test_the_answer_is_given_what_the_window_leaves():
    model = model_spec(context_length=1000, max_tokens=400)

    def script(request):
        used = 700 if len(request["messages"]) > 2 else 500
        return says("", bash("ls"), usage={"prompt_tokens": used})

    _, requests = rollout(script, model=model, agent=agent_spec(step_limit=3))
    assert requests[0]["max_tokens"] == 400
    assert 200 < requests[2]["max_tokens"] < 300


def test_an_answer_cut_by_the_full_window_is_no_format_error():
    model = model_spec(context_length=1000, max_tokens=400)

    def script(request):
        if len(request["messages"]) > 2:
            return says("I was go", finish_reason="length", usage={"prompt_tokens": 800})
        return says("", bash("ls"), usage={"prompt_tokens": 800})

    outcome, _ = rollout(script, model=model)
    assert outcome.failure_class is FailureClass.LIMIT_CONTEXT
    assert outcome.calls[-1].prompt_tokens == 800


def test_ten_identical_calls_in_a_row_are_labelled_and_do_not_end_the_run():
    script = [says("", bash("ls")) for _ in range(10)]
    outcome, _ = rollout([*script, submits()])
    assert outcome.loop
    assert outcome.failure_class is FailureClass.OK
    shorter, _ = rollout([*script[:9], submits()])
    assert not shorter.loop


def test_a_loop_ends_the_run_where_that_is_asked():
    outcome, _ = rollout(lambda _: says("", bash("ls")), agent=agent_spec(stop_on_loop=True))
    assert outcome.loop
    assert outcome.exit_status == "StoppedOnLoop"
    assert len(outcome.calls) == 10


# --- failures that are not the agent's -----------------------------------------------------------
def test_a_dead_server_is_no_ending_of_the_agent():
    outcome, _ = rollout(lambda _: says(status=503, body=b"starting"))
    assert outcome.failure_class is FailureClass.INFRA_SERVER
    assert "HTTP 503: starting" in outcome.failure


def test_a_broken_sandbox_is_no_ending_of_the_agent():
    outcome, _ = rollout([says("", bash("ls"))], results={"ls": SandboxError("gone")})
    assert outcome.failure_class is FailureClass.INFRA_SANDBOX
    assert outcome.exit_status == "SandboxError"


def test_half_an_emoji_in_a_plan_is_no_error_of_the_agent():
    script = [says("", planctl("set", steps=["Mend \ud83d it"])), submits()]
    outcome, _ = rollout(script)
    assert outcome.failure_class is FailureClass.OK
    assert "Mend \ufffd it" in outcome.messages[3].content


def test_a_worker_that_must_go_gives_the_run_up():
    should_stop = iter([False, False, True]).__next__
    outcome, _ = rollout(lambda _: says("", bash("ls")), should_stop=should_stop)
    assert outcome.failure_class is FailureClass.INFRA_NODE
    assert "shutting down" in outcome.failure


def test_what_a_run_cost_before_our_side_failed_is_on_record():
    """It was thrown away once, and the failure said to have cost nothing."""
    replies = iter([says("", bash("ls"), usage={"prompt_tokens": 70})])
    outcome, _ = rollout(lambda _: next(replies, says(status=503, body=b"gone")))
    assert outcome.failure_class is FailureClass.INFRA_SERVER
    assert [call.prompt_tokens for call in outcome.calls] == [70, None]
    assert [m.role for m in outcome.messages] == ["system", "user", "assistant", "tool"]
    assert outcome.limit_patch is None


def test_an_error_in_the_agents_own_code_is_an_agent_error_with_its_traceback():
    outcome, _ = rollout(
        [says("", bash("ls"))], agent=agent_spec(observation_template="{{ output.nothing }}")
    )
    assert outcome.failure_class is FailureClass.AGENT_ERROR
    assert outcome.exit_status == "UndefinedError"
    assert "Traceback" in outcome.failure
    assert len(outcome.calls) == 1


def test_a_defect_of_an_arms_policy_is_our_failure_and_not_the_arms():
    class Careless:
        def decide(self, trajectory, _standing, _ask):
            return [] if not trajectory.turns else [trajectory.messages[99]]

    outcome, _ = rollout([says("", bash("ls")), submits()], policy=Careless())
    assert outcome.failure_class is FailureClass.INFRA_NODE
    assert "policy failed: IndexError" in outcome.failure


def test_failed_requests_are_counted_beside_the_run_and_never_in_it():
    replies = iter([says(status=500, body=b"oops"), says("", bash("ls")), submits()])
    outcome, _ = rollout(lambda _: next(replies))
    first, second = outcome.calls
    assert first.retry_tokens == first.prompt_tokens
    assert second.retry_tokens == 0
