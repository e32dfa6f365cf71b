from tabular.reader import Dialect, ReadError, read, sniff, value_of, write
from tabular.table import Table

TEXT = """\
# members
name,city,age
Ann,"Bonn, Beuel",41
Bob,Ulm,
"""


def error_of(text):
    try:
        read(text)
    except ReadError as error:
        return str(error)
    raise AssertionError("ReadError was not raised")


def test_quoted_fields_may_hold_delimiters():
    assert read(TEXT).rows == [("Ann", "Bonn, Beuel", 41), ("Bob", "Ulm", None)]


def test_values_have_types():
    assert [value_of(t) for t in ("1", "2.5", "1e3", "TRUE", "NA", "x")] == [
        1, 2.5, 1000.0, True, None, "x",
    ]


def test_codes_with_leading_zeros_stay_text():
    assert value_of("00420") == "00420"
    assert value_of("0.5") == 0.5


def test_quoted_numbers_stay_text():
    assert read('a,b\n"12",12\n').rows == [("12", 12)]


def test_the_delimiter_is_guessed():
    assert sniff("a;b;c\n1;2;3\n").delimiter == ";"
    assert read("a\tb\n1\t2\n").rows == [(1, 2)]


def test_without_a_header_columns_are_numbered():
    assert read("1,2\n3,4\n", Dialect(header=False)).columns == ["c1", "c2"]


def test_errors_name_the_line():
    assert error_of("a,b\n1\n").startswith("line 2")
    assert error_of("a,a\n1,2\n").startswith("line 1")
    assert "never closed" in error_of('a,b\n"1,2\n')


def test_write_is_read_back():
    table = read(TEXT)
    assert read(write(table)) == table


def test_write_quotes_what_would_change():
    assert write(Table(["a"], [("12",), ("x,y",), (12,)])) == 'a\n"12"\n"x,y"\n12\n'
