from tabular.table import Table, TableError

PEOPLE = Table(
    ["name", "city", "age"],
    [("Ann", "Bonn", 41), ("Bob", "Ulm", 17), ("Cid", "Bonn", 30), ("Dan", "Kiel", 17)],
)
CITIES = Table(["city", "size"], [("Bonn", 330), ("Ulm", 126)])


def raises(call, *arguments):
    try:
        call(*arguments)
    except TableError as error:
        return str(error)
    raise AssertionError("TableError was not raised")


def test_select_and_rename():
    assert PEOPLE.select("age", "name").rows[0] == (41, "Ann")
    assert PEOPLE.rename({"age": "years"}).columns == ["name", "city", "years"]


def test_unknown_columns_get_a_suggestion():
    assert "did you mean 'city'?" in raises(PEOPLE.select, "ctiy")


def test_where_and_extend():
    adults = PEOPLE.where(lambda row: row["age"] >= 18)
    assert adults.values("name") == ["Ann", "Cid"]
    assert adults.extend("next", lambda row: row["age"] + 1).values("next") == [42, 31]


def test_sort_by_several_columns():
    assert PEOPLE.sort("city", "-age").values("name") == ["Ann", "Cid", "Dan", "Bob"]


def test_none_comes_last():
    table = Table(["x"], [(None,), (2,), ("b",), (1,)])
    assert table.sort("x").values("x") == [1, 2, "b", None]


def test_group_leaves_out_none():
    table = Table(["k", "v"], [("a", 1), ("b", None), ("a", 3)])
    assert table.group(["k"], {"n": ("count", "v"), "m": ("mean", "v")}).rows == [
        ("a", 2, 2.0),
        ("b", 0, None),
    ]


def test_inner_join():
    joined = PEOPLE.join(CITIES, "city")
    assert joined.columns == ["name", "city", "age", "size"]
    assert joined.values("name") == ["Ann", "Bob", "Cid"]


def test_left_join_fills_up():
    assert PEOPLE.join(CITIES, "city", how="left").values("size") == [330, 126, 330, None]


def test_shared_columns_get_a_suffix():
    other = Table(["city", "name"], [("Ulm", "Ulm an der Donau")])
    assert PEOPLE.join(other, "city").columns == ["name", "city", "age", "name_right"]


def test_append_pivot_distinct():
    assert len(PEOPLE.append(PEOPLE)) == 8
    assert len(PEOPLE.append(PEOPLE).distinct()) == 4
    table = Table(["m", "k", "v"], [(1, "a", 5), (1, "b", 6), (2, "a", 7)])
    assert table.pivot("m", "k", "v").rows == [(1, 5, 6), (2, 7, None)]


def test_of_fills_missing_keys():
    assert Table.of([{"a": 1}, {"b": 2}]).rows == [(1, None), (None, 2)]
