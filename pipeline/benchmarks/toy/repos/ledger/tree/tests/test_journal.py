from datetime import date

from ledger.journal import Entry, Journal, JournalError, Posting, is_below, parse
from ledger.money import Money

BOOKS = """\
; the club's books
2024-01-05 Hall rent #hall
    Expenses:Rent          120.00 EUR
    Assets:Bank           -120.00 EUR

2024-01-20 * Fees
    Assets:Bank            300.00 EUR  ; six members
    Income:Fees

2024-01-03 ! Opening
    Assets:Bank            500.00 EUR
    Equity:Opening        -500.00 EUR
"""


def raises(call, *arguments):
    try:
        call(*arguments)
    except JournalError as error:
        return str(error)
    raise AssertionError("JournalError was not raised")


def entry(day, *amounts):
    postings = tuple(
        Posting(account, Money.of(amount, currency)) for account, amount, currency in amounts
    )
    return Entry(date.fromisoformat(day), "x", postings)


def test_parse_sorts_by_day():
    assert [e.title for e in parse(BOOKS)] == ["Opening", "Hall rent #hall", "Fees"]


def test_an_open_posting_takes_what_is_missing():
    fees = list(parse(BOOKS))[-1]
    assert fees.postings[-1] == Posting("Income:Fees", Money.of("-300", "EUR"))


def test_flags_and_tags():
    journal = parse(BOOKS)
    assert [e.pending for e in journal] == [True, False, False]
    assert [e.title for e in journal.tagged("hall")] == ["Hall rent #hall"]


def test_an_entry_that_does_not_balance_is_refused():
    bad = entry("2024-01-01", ("Assets:Bank", "1", "EUR"), ("Income:Fees", "-2", "EUR"))
    assert "off by -100" in raises(Journal().add, bad)


def test_one_posting_is_not_an_entry():
    assert "two postings" in raises(Journal().add, entry("2024-01-01", ("Assets:Bank", "0", "EUR")))


def test_unknown_root_account():
    assert "must start with" in raises(Posting, "Stuff:Bank", Money.zero("EUR"))


def test_errors_name_the_line():
    assert raises(parse, "2024-13-01 x\n").startswith("line 1")
    assert raises(parse, "2024-01-01 x\n    Assets:Bank  12 apples\n").startswith("line 2")


def test_two_open_postings_are_refused():
    assert "only one" in raises(parse, "2024-01-01 x\n    Assets:Bank\n    Income:Fees\n")


def test_before_leaves_out_the_day_itself():
    assert len(parse(BOOKS).before(date(2024, 1, 5))) == 1


def test_between_finds_the_middle_of_a_month():
    assert [e.title for e in parse(BOOKS).between(date(2024, 1, 4), date(2024, 1, 19))] == [
        "Hall rent #hall"
    ]


def test_is_below_needs_whole_names():
    assert is_below("Assets:Bank:Giro", "Assets:Bank")
    assert not is_below("Assets:Bankrupt", "Assets:Bank")
