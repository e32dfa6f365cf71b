"""Hypothesis strategies for runs: everything an agent's history can contain."""

import json

from hypothesis import strategies as st

from pipeline.views.policy import AuxReply, AuxRequest, CallKind, RequestedToolCall
from tests.context.scripts import Act, Answers, Round, planctl

commands = st.sampled_from(
    [
        "cat a.py",
        "cat b.py",
        "sed -n 1,40p src/a.py",
        "grep -rn needle .",
        "ls -la",
        "cat > a.py <<'EOF'\n" + "x = 1\n" * 30 + "EOF",
        "python -c \"print('ä')\"",
        "python -m pytest tests/test_a.py -x -q --tb=short --no-header -p no:cacheprovider",
        "",
    ]
)
outputs = st.one_of(
    st.just(""),
    st.text(max_size=40),
    st.sampled_from(["one\ntwo\nthree", "数据 données Ω " * 30, "def f():\n    return 1\n" * 40]),
    st.integers(1, 900).map(lambda n: " ".join(f"word{k}" for k in range(n))),
    st.just("long line " * 3000),
)
bash = st.builds(
    Act,
    command=commands,
    output=outputs,
    returncode=st.sampled_from([0, 0, 0, 1, -1]),
    waited_s=st.sampled_from([None, 1.0, 1.0, 400.0]),
)
plan = st.one_of(
    st.builds(
        lambda n: planctl(*[("set", k) for k in range(n + 1)], ("start", 1)), st.integers(1, 4)
    ),
    st.builds(lambda n: planctl(("complete", n)), st.integers(1, 4)),
    st.builds(lambda n: planctl(("complete", n), ("start", n + 1)), st.integers(1, 4)),
    st.just(planctl(output="no such step")),
)
own = st.builds(
    lambda ids: Act(command=ids, output="noted", tool="prune_observations"),
    st.sampled_from(['{"ids": [1, 2]}', '{"ids": [1', "{}", '{"ids": [9999]}']),
)
compress = st.builds(
    lambda arguments: Act(command=arguments, output="noted", tool="compress"),
    st.sampled_from(
        [
            '{"first": 1, "last": 3, "summary": "a.py has rules"}',
            '{"first": 2, "last": 90, "summary": "all of it"}',
            '{"first": 9, "last": 2, "summary": "backwards"}',
            '{"first": 1}',
            "compress 1 2 in plain words",
        ]
    ),
)
acts = st.lists(st.one_of(bash, bash, bash, plan, own, compress), min_size=1, max_size=3).map(tuple)
rounds = st.one_of(
    st.builds(
        Round,
        acts=acts,
        text=st.sampled_from(["", "Let me look at a.py.", "Überlegung: weiter."]),
        reasoning=st.sampled_from([None, "", "I think a.py is wrong.", "思考 " * 20]),
    ),
    st.builds(Round),
)
scripts = st.lists(rounds, max_size=16)
long_scripts = st.lists(rounds, min_size=25, max_size=60)


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    """A model that answers auxiliary calls well, badly or not at all; likewise a line pruner."""
    replies = draw(
        st.lists(
            st.one_of(
                st.just(("prune_observations", '{"ids": [1, 2, 3, 4, 5, 6], "note": "a is 1"}')),
                st.just(("prune_observations", '{"ids": []}')),
                st.just(("prune_observations", '{"ids": ["2", -1, null, 10000, true]}')),
                st.just(("prune_observations", '{"ids": [1, 2')),
                st.just(("bash", '{"command": "ls"}')),
                st.just((None, "Short notes on the work so far.")),
                st.just((None, "prune_observations 1 3")),
                st.just((None, "")),
            ),
            min_size=1,
            max_size=4,
        )
    )
    asked = [0]
    kept = draw(st.sampled_from([None, [], [[1, 1]], [[1, 2], [4, 4]], "error"]))

    def answer(request: AuxRequest) -> AuxReply:
        if request.kind is CallKind.LINES:
            said = {"error": "no"} if kept == "error" else {"kept": kept}
            outputs = [{"message": o.message_index, **said} for o in request.outputs]
            told = {"pruner": request.pruner, "outputs": outputs}
            return AuxReply(kind=request.kind, content=json.dumps(told))
        name, text = replies[asked[0] % len(replies)]
        asked[0] += 1
        tool_calls = () if name is None else (RequestedToolCall(id="x", name=name, arguments=text),)
        content = text if name is None else ""
        return AuxReply(
            kind=request.kind, content=content, tool_calls=tool_calls, completion_tokens=12
        )

    return answer
