from taskgraph.cli import failures_of, main
from taskgraph.graph import CycleError, Graph, GraphError, Task
from taskgraph.spec import SpecError, parse

TEXT = """\
# build and ship
task fetch
  seconds = 5
task compile: fetch
  run = make all
  inputs = src/main.c, src/lib.c
  seconds = 40
task lint: fetch
  seconds = 10
task ship: compile, lint
  env = TARGET=prod, LEVEL=2
"""


def raises(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def test_order_respects_needs():
    order = parse(TEXT).order()
    assert order.index("fetch") < order.index("compile") < order.index("ship")


def test_order_keeps_the_order_of_adding():
    assert Graph.of([Task("b"), Task("a"), Task("c", ("a",))]).order() == ["b", "a", "c"]


def test_a_cycle_is_named():
    tasks = [Task("a", ("b",)), Task("b", ("c",)), Task("c", ("b",))]
    error = raises(CycleError, Graph.of, tasks)
    assert error.cycle[0] == error.cycle[-1]
    assert set(error.cycle) == {"b", "c"}


def test_unknown_needs_are_refused():
    assert "which is no task" in str(raises(GraphError, Graph.of, [Task("a", ("x",))]))


def test_ancestors_and_descendants():
    graph = parse(TEXT)
    assert graph.ancestors("ship") == {"fetch", "compile", "lint"}
    assert graph.descendants("fetch") == {"compile", "lint", "ship"}


def test_levels_are_waves():
    assert parse(TEXT).levels() == [["fetch"], ["compile", "lint"], ["ship"]]


def test_critical_path():
    assert parse(TEXT).critical_path() == (46.0, ["fetch", "compile", "ship"])


def test_subgraph_takes_what_is_needed():
    assert set(parse(TEXT).subgraph(["lint"]).tasks) == {"fetch", "lint"}


def test_settings_are_read():
    graph = parse(TEXT)
    assert graph["compile"].inputs == ("src/main.c", "src/lib.c")
    assert graph["ship"].environment == (("TARGET", "prod"), ("LEVEL", "2"))


def test_spec_errors_name_the_line():
    assert str(raises(SpecError, parse, "task a\n  colour = red\n")).startswith("line 2")


def test_command_line():
    assert failures_of(["a:2", "b"]) == {"a": 2, "b": float("inf")}
    assert main(["order", "no/such/file"]) == 1
