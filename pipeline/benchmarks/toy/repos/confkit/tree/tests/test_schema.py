from confkit.cli import main
from confkit.schema import Field, Schema, SchemaError

SCHEMA = Schema(
    [
        Field("name", "text", required=True),
        Field("server.port", "integer", default=80, minimum=1, maximum=65535),
        Field("server.mode", "text", choices=("http", "https"), default="http"),
        Field("ratio", "number", doc="how much"),
    ],
    open_sections=("extra",),
)


def test_a_good_tree_passes():
    tree = {"name": "x", "server": {"port": 8080}, "extra": {"anything": 1}}
    assert SCHEMA.validate(tree) is tree


def test_every_problem_is_listed():
    try:
        SCHEMA.validate({"server": {"port": 0, "mode": "ftp"}})
    except SchemaError as error:
        assert len(error.problems) == 3
    else:
        raise AssertionError("SchemaError was not raised")


def test_unknown_keys_get_a_suggestion():
    (problem,) = SCHEMA.problems({"name": "x", "server": {"prot": 1}})
    assert "did you mean server.port?" in problem


def test_a_flag_is_no_integer():
    assert "got a flag" in SCHEMA.problems({"name": "x", "server": {"port": True}})[0]


def test_defaults_make_a_tree():
    assert SCHEMA.defaults() == {"server": {"port": 80, "mode": "http"}}


def test_document_lists_every_field():
    assert len(SCHEMA.document().splitlines()) == 5


def test_command_line_reports_a_bad_assignment():
    assert main(["show", "--set", "novalue"]) == 1
