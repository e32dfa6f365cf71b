from datetime import date

from ledger.cli import main, weights_of
from ledger.journal import parse
from ledger.money import Money
from ledger.reports import balance, balances, budget, month_range, render_balances, share
from ledger.reports import share_evenly, statement

BOOKS = """\
2024-03-01 Opening
    Assets:Bank            500.00 EUR
    Equity:Opening        -500.00 EUR
2024-03-10 Balls
    Expenses:Kit            45.50 EUR
    Assets:Bank            -45.50 EUR
2024-04-02 Nets
    Expenses:Kit            20.00 EUR
    Assets:Bank            -20.00 EUR
2024-04-15 Fees
    Assets:Bank             80.00 EUR
    Income:Fees            -80.00 EUR
"""


def eur(text):
    return Money.of(text, "EUR")


def test_balance_counts_the_accounts_below():
    journal = parse(BOOKS)
    assert balance(journal, "Assets", "EUR") == eur("514.50")
    assert balance(journal, "Expenses:Kit", "EUR") == eur("65.50")


def test_balances_leave_out_zero():
    assert "Assets:Bank" in balances(parse(BOOKS))
    assert balances(parse("")) == {}


def test_month_range_knows_leap_years():
    assert month_range(2024, 2) == (date(2024, 2, 1), date(2024, 2, 29))


def test_statement_has_a_running_balance():
    report = statement(parse(BOOKS), "Assets:Bank", 2024, 4, "EUR")
    assert report.opening == eur("454.50")
    assert [line.balance for line in report.lines] == [eur("434.50"), eur("514.50")]
    assert report.closing == eur("514.50")


def test_share_by_weight():
    assert share(eur("90.00"), {"bob": 1, "ann": 2}) == {"ann": eur("60.00"), "bob": eur("30.00")}


def test_share_evenly():
    assert share_evenly(eur("1.00"), ["c", "a", "b"]) == {
        "a": eur("0.34"),
        "b": eur("0.33"),
        "c": eur("0.33"),
    }


def test_budget_shows_what_is_left():
    (line,) = budget(parse(BOOKS), {"Expenses:Kit": eur("30.00")}, 2024, 4)
    assert line.left == eur("10.00")


def test_render_aligns():
    text = render_balances(balances(parse(BOOKS)))
    assert len({len(line) for line in text.splitlines()}) == 1


def test_command_line_weights():
    assert weights_of(["ann=2", "bob"]) == {"ann": 2, "bob": 1}


def test_command_line_reports_a_missing_file():
    assert main(["balance", "no/such/file"]) == 1
