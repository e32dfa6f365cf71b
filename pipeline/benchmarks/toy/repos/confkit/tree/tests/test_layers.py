from confkit.layers import InterpolationError, Layers, MissingKey, find, merge, walk
from confkit.parser import UNSET


def raises(kind, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def two_layers():
    return (
        Layers()
        .add_text("defaults", "[server]\nhost = localhost\nport = 80\n")
        .add_text("user", "[server]\nport = 8080\n")
    )


def test_later_layers_win_key_by_key():
    assert two_layers().merged() == {"server": {"host": "localhost", "port": 8080}}


def test_unset_takes_a_key_away():
    assert merge({"a": 1, "b": 2}, {"a": UNSET}) == {"b": 2}


def test_sections_replace_values():
    assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}


def test_walk_yields_dotted_keys():
    assert dict(walk({"a": {"b": 1}, "c": 2})) == {"a.b": 1, "c": 2}


def test_find_says_what_is_missing():
    assert "server.user" in raises(MissingKey, find, {"server": {}}, "server.user")


def test_origin_is_the_topmost_layer():
    layers = two_layers()
    assert layers.origin("server.port") == "user"
    assert layers.origin("server.host") == "defaults"
    assert layers.origin("server.user") is None


def test_explain_marks_the_winner():
    assert two_layers().explain("server.port") == "  defaults: 80\n> user: 8080"


def test_overrides_come_from_the_command_line():
    layers = two_layers().add_overrides(["server.port=99", "debug=on"])
    assert layers.get("server.port") == 99
    assert layers.get("debug") is True


def test_references_are_replaced():
    layers = two_layers().add_text("site", "[server]\nurl = http://${server.host}:${server.port}/\n")
    assert layers.get("server.url") == "http://localhost:8080/"


def test_a_whole_reference_keeps_its_type():
    layers = two_layers().add_text("site", "copy = ${server.port}\n")
    assert layers.get("copy") == 8080


def test_circles_and_missing_references_are_errors():
    layers = Layers().add_text("x", "a = ${b}\nb = ${a}\n")
    assert "circle" in raises(InterpolationError, layers.resolved)
    layers = Layers().add_text("x", "a = ${nope}\n")
    assert "no such key" in raises(InterpolationError, layers.resolved)


def test_a_layer_name_is_used_once():
    assert "already" in raises(ValueError, two_layers().add, "user", {})
