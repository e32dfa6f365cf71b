from confkit.parser import UNSET, ParseError, dumps, format_value, loads, parse_value, split_items

TEXT = """\
# the defaults
name = demo
[server]
host = example.org   ; where
port = 8080
paths = [/a, "b, c", /d]
[server.tls]
on = yes
"""


def error_of(text):
    try:
        loads(text, source="site.conf")
    except ParseError as error:
        return str(error)
    raise AssertionError("ParseError was not raised")


def test_sections_nest():
    tree = loads(TEXT)
    assert tree["name"] == "demo"
    assert tree["server"]["tls"] == {"on": True}


def test_comments_go_to_the_end_of_the_line():
    assert loads(TEXT)["server"]["host"] == "example.org"
    assert loads("url = http://x/#top\n") == {"url": "http://x/#top"}


def test_values_have_types():
    assert [parse_value(t) for t in ("1", "-2.5", "1e3", "off", "", "x y")] == [
        1, -2.5, 1000.0, False, None, "x y",
    ]
    assert parse_value("~") is UNSET


def test_lists_may_hold_quoted_commas():
    assert loads(TEXT)["server"]["paths"] == ["/a", "b, c", "/d"]
    assert split_items('1, [2, 3], "4,5"') == ["1", "[2, 3]", '"4,5"']


def test_quotes_and_escapes():
    assert parse_value(r'"a\tb \"c\" \\"') == 'a\tb "c" \\'


def test_continuation_lines_are_joined():
    assert loads("list = [1, \\\n   2]\n") == {"list": [1, 2]}


def test_errors_name_file_and_line():
    assert error_of("a = 1\nwhat\n").startswith("site.conf:2:")
    assert "twice" in error_of("a = 1\na = 2\n")
    assert "never closed" in error_of('a = "x\n')


def test_dumps_is_read_back():
    tree = loads(TEXT)
    assert loads(dumps(tree)) == tree


def test_format_quotes_what_would_change():
    assert format_value("yes") == '"yes"'
    assert format_value("12") == '"12"'
    assert format_value("plain text") == "plain text"
