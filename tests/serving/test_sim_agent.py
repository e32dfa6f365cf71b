"""The simulated agent, run to its end in a real repository with a real shell."""

import pytest

from pipeline.serving.sim import SimConfig, serve
from pipeline.serving.sim.brain import Question, answer
from pipeline.serving.sim.recipe import load_recipes
from pipeline.serving.sim.sight import read_of
from pipeline.serving.sim.step import TURN_CAP
from pipeline.serving.sim.view import shown_output
from tests.serving.sim_world import (
    BASH_TOOL,
    PLACEHOLDER,
    TASK,
    Client,
    Run,
    copy_of,
    make_repository,
    mask,
    write_recipes,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim")
    repository = make_repository(folder / "repository")
    with serve(SimConfig(recipes=write_recipes(folder))) as sim:
        client = Client(sim.port)
        yield client, repository
        client.close()


@pytest.fixture
def run(world, tmp_path):
    client, repository = world
    made = []

    def start(**options):
        # Folders of different names and depths: nothing may depend on where a run lies.
        made.append("Sub_1")
        return Run(client, copy_of(repository, tmp_path.joinpath(*made)), **options).go()

    return start


def rereads(run):
    """How many commands read needed lines beyond the recipe's own `cat`s."""
    return sum(1 for c in run.commands if "sed -n" in c and read_of(c) is not None)


def is_repaired(run):
    patch = run.submission or ""
    return "+    return sum(values) / len(values) if values else 0" in patch and (
        "-    return width * height + 1" in patch
    )


@pytest.mark.parametrize("text_mode", [False, True])
def test_it_plans_edits_and_submits_a_patch(run, text_mode):
    done = run(text_mode=text_mode, seed=2)
    assert is_repaired(done)
    assert 20 <= done.n_steps <= 80
    assert done.refused_plans == []
    assert [s.state.value for s in done.plan.steps] == ["done"] * 4 + ["active"]


def test_without_a_plan_tool_it_works_without_a_plan(run):
    done = run(plan_tool=False)
    assert is_repaired(done)
    # A command that a later step knows too (`git diff` as a detour) once skipped all in between.
    assert done.commands.count("cat stats.py") + done.commands.count("cat shapes.py") >= 1
    assert done.n_steps >= 12
    assert done.plan.steps == ()


def test_it_does_not_read_again_what_it_still_sees(run):
    assert [rereads(run(seed=seed)) for seed in range(3)] == [0, 0, 0]


def test_it_reads_again_what_was_replaced_by_a_placeholder(run):
    masked = run(view=mask(2))
    assert rereads(masked) >= 2
    assert is_repaired(masked)


def test_cleanup_turns_prune_and_cost_some_reading_again(run):
    runs = [run(prunes=True, seed=seed) for seed in range(4)]
    assert all(is_repaired(r) and r.cleanups >= 3 and r.pruned for r in runs)
    assert any(rereads(r) for r in runs)


def test_text_mode_answers_the_cleanup_with_a_line(run):
    done = run(prunes=True, text_mode=True)
    assert done.cleanups >= 3
    assert done.pruned
    assert is_repaired(done)


def test_the_seed_changes_the_path_and_nothing_else_does(run):
    first, again, other = run(seed=1), run(seed=1), run(seed=5)
    assert first.commands == again.commands
    assert first.usages == again.usages
    assert first.commands != other.commands


def test_an_instance_beyond_it_ends_with_the_wrong_patch(world, tmp_path):
    _, repository = world
    recipes = write_recipes(tmp_path, solvable=False)
    with serve(SimConfig(recipes=recipes)) as sim:
        client = Client(sim.port)
        done = Run(client, copy_of(repository, tmp_path / "copy")).go()
        client.close()
    assert "+    return width * height + 2" in done.submission


def only_last_turn(messages):
    starts = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    return messages[:2] + (messages[starts[-1] :] if starts else [])


def without_thoughts(messages):
    return [
        {k: v for k, v in m.items() if k != "reasoning"} | ({"content": ""} if i > 1 else {})
        for i, m in enumerate(messages)
    ]


def commands_cut(messages):
    """Tool-call arguments gone, as when old edit bodies are cut."""
    cut = []
    for message in messages:
        calls = [
            {**c, "function": {**c["function"], "arguments": '{"command": "[cut]"}'}}
            for c in message.get("tool_calls", ())
        ]
        cut.append({**message, "tool_calls": calls} if calls else message)
    return cut


@pytest.mark.parametrize("view", [mask(0), only_last_turn, without_thoughts, commands_cut])
@pytest.mark.parametrize("text_mode", [False, True])
def test_whatever_is_hidden_the_run_ends(run, view, text_mode):
    done = run(view=view, text_mode=text_mode, step_limit=TURN_CAP + 4)
    assert done.submission is not None


def test_it_goes_on_from_its_own_summary(world, tmp_path):
    client, repository = world
    run = Run(client, copy_of(repository, tmp_path / "copy"), step_limit=18).go()
    turns = "\n\n".join(str(m) for m in run.messages[2:])
    asked = [
        {"role": "system", "content": "You summarise the work of an agent."},
        {"role": "user", "content": f"Task: {run.messages[1]['content']}\n\nTurns:\n{turns}"},
    ]
    summary = client.chat(asked, temperature=0)["choices"][0]["message"]["content"]
    assert "COMPLETED: step 1 (Understand the repository)" in summary
    until = len(run.messages)
    run.view = lambda messages: [
        *messages[:2],
        {"role": "user", "content": summary},
        *messages[until:],
    ]
    run.step_limit = 60
    before = len(run.commands)
    while run.submission is None and run.n_steps < run.step_limit:
        run._step()
    assert is_repaired(run)
    assert "cat stats.py" not in run.commands[before:]


def test_an_unknown_task_is_looked_at_and_given_up(world, tmp_path, monkeypatch):
    client, repository = world
    monkeypatch.setattr("tests.serving.sim_world.TASK", "Something that no recipe describes.")
    done = Run(client, copy_of(repository, tmp_path / "copy")).go()
    assert done.submission == ""


def test_a_placeholder_is_no_output():
    assert shown_output(PLACEHOLDER) is None
    assert shown_output("Old environment output: (12 lines omitted)") is None
    assert shown_output("") is None
    assert shown_output("<returncode>0</returncode>\n<output>\nx = 1\n</output>") == "x = 1"


def test_where_it_sees_nothing_but_the_task_it_gives_up_in_rare_answers_only(tmp_path):
    book = load_recipes(write_recipes(tmp_path))
    messages = [{"role": "system", "content": "x"}, {"role": "user", "content": TASK}]
    first = [
        answer(Question(messages=messages, tools=[BASH_TOOL], seed=seed, extra={}), book)
        for seed in range(3000)
    ]
    n_closing = sum(reply.acts[0].arguments["command"].startswith("git diff >") for reply in first)
    assert 3 <= n_closing <= 40
