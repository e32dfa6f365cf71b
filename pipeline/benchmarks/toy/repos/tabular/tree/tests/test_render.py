from tabular.cli import condition, main
from tabular.render import Style, bars, cut, is_numeric, markdown, pad, text
from tabular.table import Table

TABLE = Table(["name", "age"], [("Ann", 41), ("Bobby", None), ("Cid", 7)])


def test_numbers_are_aligned_to_the_right():
    assert text(TABLE).splitlines() == [
        "name   age",
        "-----  ---",
        "Ann     41",
        "Bobby",
        "Cid      7",
    ]


def test_markdown():
    assert markdown(TABLE).splitlines()[:3] == [
        "| name  | age |",
        "| ----- | --: |",
        "| Ann   |  41 |",
    ]


def test_cut_marks_what_is_missing():
    assert cut("abcdef", 4) == "abc…"
    assert cut("abc", 4) == "abc"


def test_pad():
    assert pad("a", 3) == "a  "
    assert pad("a", 3, right=True) == "  a"


def test_style():
    table = Table(["x", "f"], [(1.5, True), (None, False)])
    assert text(table, Style(none="-", decimals=1)).splitlines()[2:] == ["1.5  yes", "  -  no"]


def test_flags_are_no_numbers():
    assert not is_numeric([True, False])
    assert not is_numeric([None])
    assert is_numeric([1, None, 2.5])


def test_line_breaks_are_not_shown():
    assert "a b" in text(Table(["x"], [("a\nb",)]))


def test_bars_are_in_proportion():
    assert bars(TABLE, "name", "age", cells=41).splitlines()[2] == "Cid   |####### 7"


def test_conditions():
    assert condition("age>=18")({"age": 18})
    assert not condition("age>=18")({"age": None})


def test_command_line_reports_a_missing_file():
    assert main(["no/such/file"]) == 1
