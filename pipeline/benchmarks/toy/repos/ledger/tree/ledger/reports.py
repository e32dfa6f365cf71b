"""What the books say: balances, statements, shares, budgets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from ledger.journal import Entry, Journal, is_below
from ledger.money import Money


@dataclass(frozen=True)
class Line:
    """One line of a statement: an entry's effect and the balance after it."""

    day: date
    title: str
    change: Money
    balance: Money


@dataclass(frozen=True)
class Statement:
    """A month of one account in one currency."""

    account: str
    first: date
    last: date
    opening: Money
    closing: Money
    lines: "tuple[Line, ...]"


@dataclass(frozen=True)
class BudgetLine:
    """What was planned for an account in a month, and what was spent."""

    account: str
    planned: Money
    spent: Money

    @property
    def left(self) -> Money:
        """What may still be spent; negative when overspent."""
        return self.planned - self.spent


def change_of(entry: Entry, account: str, currency: str) -> Money:
    """Return what an entry adds to an account and those below it, in one currency."""
    minor = sum(
        posting.amount.minor
        for posting in entry.postings
        if is_below(posting.account, account) and posting.amount.currency == currency
    )
    return Money(minor, currency)


def balance(journal: Journal, account: str, currency: str) -> Money:
    """Return the balance of an account and those below it over the whole journal."""
    result = Money.zero(currency)
    for entry in journal:
        result = result + change_of(entry, account, currency)
    return result


def balances(journal: Journal) -> "dict[str, dict[str, Money]]":
    """Return account -> currency -> balance, leaving out what is zero."""
    table: "dict[str, dict[str, Money]]" = {}
    for entry in journal:
        for posting in entry.postings:
            row = table.setdefault(posting.account, {})
            currency = posting.amount.currency
            row[currency] = row.get(currency, Money.zero(currency)) + posting.amount
    return {
        account: {currency: amount for currency, amount in row.items() if amount}
        for account, row in sorted(table.items())
        if any(row.values())
    }


def month_range(year: int, month: int) -> "tuple[date, date]":
    """Return the first and the last day of a month."""
    first = date(year, month, 1)
    following = date(year, month + 1, 1)
    return first, following - timedelta(days=1)


def statement(journal: Journal, account: str, year: int, month: int, currency: str) -> Statement:
    """Return what happened on an account in a month, with a running balance.

    The opening balance is that of the evening before; entries of pending state count.
    """
    first, last = month_range(year, month)
    opening = Money.zero(currency)
    for entry in journal.before(first):
        opening = opening + change_of(entry, account, currency)
    running = opening
    lines = []
    for entry in journal.between(first, last):
        change = change_of(entry, account, currency)
        if not change:
            continue
        running = running + change
        lines.append(Line(entry.day, entry.title, change, running))
    return Statement(account, first, last, opening, running, tuple(lines))


def share(cost: Money, weights: "dict[str, int]") -> "dict[str, Money]":
    """Return what each member owes of a shared cost, in proportion to their weights.

    Members are served in the order of their names, so the same cost is always shared alike. A
    refund, which is a negative cost, is shared by the same rule.
    """
    names = sorted(weights)
    parts = cost.allocate([weights[name] for name in names])
    return dict(zip(names, parts))


def share_evenly(cost: Money, names: "list[str]") -> "dict[str, Money]":
    """Return what each member owes when all of them owe the same.

    The minor units that are left over go to the first members by name.
    """
    if not names:
        raise ValueError("nobody to share with")
    each = cost.minor // len(names)
    rest = cost.minor % len(names)
    return {
        name: Money(each + (1 if index < rest else 0), cost.currency)
        for index, name in enumerate(sorted(names))
    }


def budget(
    journal: Journal, plan: "dict[str, Money]", year: int, month: int
) -> "list[BudgetLine]":
    """Return planned and spent for every account of the plan."""
    first, last = month_range(year, month)
    lines = []
    for account, planned in sorted(plan.items()):
        spent = Money.zero(planned.currency)
        for entry in journal.between(first, last):
            spent = spent + change_of(entry, account, planned.currency)
        lines.append(BudgetLine(account, planned, spent))
    return lines


def render_balances(table: "dict[str, dict[str, Money]]") -> str:
    """Return balances as aligned text, one line for each account and currency."""
    rows = [(account, str(row[c])) for account, row in table.items() for c in sorted(row)]
    if not rows:
        return "no balances"
    name_width = max(len(account) for account, _ in rows)
    amount_width = max(len(amount) for _, amount in rows)
    return "\n".join(f"{account:<{name_width}}  {amount:>{amount_width}}" for account, amount in rows)


def render_statement(report: Statement) -> str:
    """Return a statement as aligned text."""
    out = [
        f"{report.account}  {report.first} to {report.last}",
        f"{'opening':<40} {report.opening!s:>16}",
    ]
    for line in report.lines:
        title = line.title if len(line.title) <= 28 else line.title[:27] + "~"
        out.append(f"{line.day} {title:<29} {line.change!s:>16} {line.balance!s:>16}")
    out.append(f"{'closing':<40} {report.closing!s:>16}")
    return "\n".join(out)
