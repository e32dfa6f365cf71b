"""The journal: dated entries, each a set of postings that balance."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Iterable, Iterator

from ledger.money import Money

ROOTS = ("Assets", "Liabilities", "Equity", "Income", "Expenses")

HEADER = re.compile(r"^(?P<day>\d{4}-\d{2}-\d{2})\s+(?:(?P<flag>[!*])\s+)?(?P<title>\S.*)$")
POSTING = re.compile(r"^\s+(?P<account>[A-Z][\w:-]*)(?:\s{2,}(?P<amount>[^;@]+?))?\s*(?:@\s*(?P<price>[^;]+?))?\s*(?:;.*)?$")
TAG = re.compile(r"#(?P<tag>[a-z][a-z0-9-]*)")


class JournalError(ValueError):
    """A journal that cannot be read, or an entry that does not balance."""


@dataclass(frozen=True)
class Posting:
    """One line of an entry: an account and what is added to it.

    `price` is what one unit of the amount's currency is worth in another currency, as in
    `100.00 USD @ 0.90 EUR`.
    """

    account: str
    amount: Money
    price: "tuple[Decimal, str] | None" = None

    def __post_init__(self) -> None:
        root = self.account.split(":", 1)[0]
        if root not in ROOTS:
            raise JournalError(f"account {self.account!r} must start with one of {', '.join(ROOTS)}")

    def weight(self) -> Money:
        """Return what this posting counts for when its entry is balanced."""
        if self.price is None:
            return self.amount
        rate, currency = self.price
        return self.amount.convert(rate, currency)


@dataclass(frozen=True)
class Entry:
    """Something that happened on a day."""

    day: date
    title: str
    postings: "tuple[Posting, ...]"
    pending: bool = False
    tags: "frozenset[str]" = field(default_factory=frozenset)

    def accounts(self) -> "list[str]":
        """Return the accounts of this entry, each once, in order."""
        return list(dict.fromkeys(posting.account for posting in self.postings))

    def imbalance(self) -> int:
        """Return by how many minor units the postings miss zero."""
        return sum(posting.amount.minor for posting in self.postings)

    def touches(self, account: str) -> bool:
        """Say whether a posting is on the account or on one below it."""
        return any(is_below(posting.account, account) for posting in self.postings)


def is_below(account: str, parent: str) -> bool:
    """Say whether `account` is `parent` or lies under it."""
    return account == parent or account.startswith(parent + ":")


class Journal:
    """Entries in the order of their days; entries of one day keep the order of adding."""

    def __init__(self, entries: "Iterable[Entry]" = ()) -> None:
        self._entries: "list[Entry]" = []
        for entry in entries:
            self.add(entry)

    def __iter__(self) -> "Iterator[Entry]":
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            JournalError: it has fewer than two postings, or it does not balance.
        """
        if len(entry.postings) < 2:
            raise JournalError(f"{entry.day} {entry.title}: an entry needs two postings or more")
        imbalance = entry.imbalance()
        if imbalance != 0:
            raise JournalError(f"{entry.day} {entry.title}: off by {imbalance}")
        position = len(self._entries)
        while position > 0 and self._entries[position - 1].day > entry.day:
            position -= 1
        self._entries.insert(position, entry)

    def between(self, first: date, last: date) -> "list[Entry]":
        """Return the entries from the first day to the last, both included."""
        return [entry for entry in self._entries if first <= entry.day < last]

    def before(self, day: date) -> "list[Entry]":
        """Return the entries before a day, that day not included."""
        return [entry for entry in self._entries if entry.day < day]

    def on(self, account: str) -> "list[Entry]":
        """Return the entries that touch an account or one below it."""
        return [entry for entry in self._entries if entry.touches(account)]

    def tagged(self, tag: str) -> "list[Entry]":
        """Return the entries with a tag, which is written `#tag` in the title."""
        return [entry for entry in self._entries if tag in entry.tags]

    def accounts(self) -> "list[str]":
        """Return every account, sorted."""
        return sorted({account for entry in self._entries for account in entry.accounts()})

    def currencies(self) -> "list[str]":
        """Return every currency of a posting, sorted."""
        return sorted({p.amount.currency for entry in self._entries for p in entry.postings})


@dataclass
class _Block:
    """An entry while its lines are read."""

    line_number: int
    day: date
    title: str
    pending: bool
    postings: "list[Posting]" = field(default_factory=list)
    open_account: "str | None" = None

    def finish(self) -> Entry:
        postings = list(self.postings)
        if self.open_account is not None:
            postings.append(Posting(self.open_account, self._missing()))
        tags = frozenset(match["tag"] for match in TAG.finditer(self.title))
        return Entry(self.day, self.title, tuple(postings), self.pending, tags)

    def _missing(self) -> Money:
        """Return the amount of the posting that was left open."""
        if not self.postings:
            raise JournalError(f"line {self.line_number}: an open posting needs another posting")
        missing = -sum(posting.amount.minor for posting in self.postings)
        return Money(missing, self.postings[0].amount.currency)


def _price_of(text: "str | None", line_number: int) -> "tuple[Decimal, str] | None":
    if text is None:
        return None
    parts = text.split()
    if len(parts) != 2:
        raise JournalError(f"line {line_number}: not a price: {text!r}")
    return Decimal(parts[0]), parts[1]


def _header(line: str, line_number: int) -> _Block:
    match = HEADER.match(line)
    if match is None:
        raise JournalError(f"line {line_number}: expected a date and a title: {line!r}")
    try:
        day = date.fromisoformat(match["day"])
    except ValueError as error:
        raise JournalError(f"line {line_number}: {error}") from None
    return _Block(line_number, day, match["title"].strip(), match["flag"] == "!")


def _posting(block: _Block, line: str, line_number: int) -> None:
    match = POSTING.match(line)
    if match is None:
        raise JournalError(f"line {line_number}: not a posting: {line.strip()!r}")
    if match["amount"] is None:
        if block.open_account is not None:
            raise JournalError(f"line {line_number}: only one posting may be left open")
        block.open_account = match["account"]
        return
    try:
        amount = Money.parse(match["amount"])
    except ValueError as error:
        raise JournalError(f"line {line_number}: {error}") from None
    price = _price_of(match["price"], line_number)
    block.postings.append(Posting(match["account"], amount, price))


def parse(text: str) -> Journal:
    """Return the journal written in `text`.

    An entry is a line with a date and a title, followed by indented postings; one of them may
    have no amount and takes what is missing. `;` starts a comment.
    """
    journal = Journal()
    block: "_Block | None" = None
    for line_number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(";"):
            continue
        if line[0].isspace():
            if block is None:
                raise JournalError(f"line {line_number}: a posting before the first entry")
            _posting(block, line, line_number)
            continue
        if block is not None:
            journal.add(block.finish())
        block = _header(line, line_number)
    if block is not None:
        journal.add(block.finish())
    return journal
