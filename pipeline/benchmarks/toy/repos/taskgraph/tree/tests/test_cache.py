from taskgraph.cache import Cache, describe, fingerprint, shared_inputs, stale, unused_inputs
from taskgraph.graph import Graph, Task

FILES = {"a.c": b"int a;", "b.c": b"int b;"}


def graph():
    return Graph.of(
        [
            Task("a", command="cc a.c", inputs=("a.c",)),
            Task("b", command="cc b.c", inputs=("b.c", "a.c")),
            Task("link", ("a", "b"), command="ld"),
        ]
    )


def test_the_fingerprint_is_stable():
    assert fingerprint(graph(), "a", FILES.get) == fingerprint(graph(), "a", FILES.get)


def test_the_fingerprint_depends_on_command_and_content():
    before = fingerprint(graph(), "a", FILES.get)
    assert fingerprint(graph(), "a", {"a.c": b"int c;"}.get) != before
    other = Graph.of([Task("a", command="gcc a.c", inputs=("a.c",))])
    assert fingerprint(other, "a", FILES.get) != before


def test_the_fingerprint_depends_on_the_environment():
    one = Graph.of([Task("a", environment=(("X", "1"),))])
    two = Graph.of([Task("a", environment=(("X", "2"),))])
    assert fingerprint(one, "a", FILES.get) != fingerprint(two, "a", FILES.get)


def test_the_fingerprint_ignores_priority():
    assert fingerprint(Graph.of([Task("a")]), "a", FILES.get) == fingerprint(
        Graph.of([Task("a", priority=3, seconds=9)]), "a", FILES.get
    )


def test_the_least_recently_used_goes():
    cache = Cache(capacity=2)
    cache.put("x", "1")
    cache.put("y", "2")
    cache.get("x")
    cache.put("z", "3")
    assert "y" not in cache
    assert "x" in cache


def test_the_rate_is_unknown_at_first():
    cache = Cache()
    assert cache.rate is None
    cache.get("x")
    assert cache.rate == 0.0


def test_stale_names_what_must_run():
    cache = Cache()
    cache.put(fingerprint(graph(), "a", FILES.get), "")
    assert stale(graph(), cache, FILES.get) == ["b", "link"]


def test_forget_counts():
    cache = Cache()
    cache.put("x", "1")
    assert cache.forget(["x", "y"]) == 1


def test_inputs_can_be_asked_about():
    assert shared_inputs(graph()) == {"a.c": ["a", "b"]}
    assert unused_inputs(graph(), ["a.c", "z.c"]) == ["z.c"]
    assert "a.c (6 bytes)" in describe(graph()["a"], FILES.get)
