"""Amounts of money as whole minor units of a currency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

DIGITS = {
    "EUR": 2,
    "USD": 2,
    "GBP": 2,
    "CHF": 2,
    "JPY": 0,
    "KRW": 0,
    "BHD": 3,
    "TND": 3,
}
"""Decimal digits of a currency's minor unit; unknown currencies have two."""

AMOUNT = re.compile(
    r"^(?P<sign>[-+]?)\s*(?P<number>[0-9][0-9 ,_]*(?:\.[0-9]+)?)\s+(?P<currency>[A-Z]{3})$"
)


class CurrencyMismatch(ValueError):
    """Two amounts of different currencies met where one currency was needed."""


def digits_of(currency: str) -> int:
    """Return the number of decimal digits of the currency's minor unit."""
    return DIGITS.get(currency, 2)


@dataclass(frozen=True)
class Money:
    """An amount in minor units, cents for EUR.

    Money of different currencies can neither be added nor compared; zero is no exception,
    because a balance of zero EUR says nothing about USD.
    """

    minor: int
    currency: str

    @classmethod
    def zero(cls, currency: str) -> "Money":
        """Return nothing at all, in a currency."""
        return cls(0, currency)

    @classmethod
    def of(cls, amount: "str | int | Decimal", currency: str) -> "Money":
        """Return money from an amount in major units, rounding half to even."""
        try:
            value = Decimal(amount)
        except InvalidOperation:
            raise ValueError(f"not an amount: {amount!r}") from None
        scaled = value.scaleb(digits_of(currency))
        return cls(int(scaled.quantize(Decimal(1), rounding=ROUND_HALF_EVEN)), currency)

    @classmethod
    def parse(cls, text: str) -> "Money":
        """Return money from text like `-1,250.00 EUR`; spaces, commas and _ may group digits."""
        match = AMOUNT.match(text.strip())
        if match is None:
            raise ValueError(f"not an amount: {text!r} (expected something like 12.50 EUR)")
        number = re.sub(r"[ ,_]", "", match["number"])
        return cls.of(match["sign"] + number, match["currency"])

    def _same(self, other: "Money") -> None:
        if self.currency != other.currency:
            raise CurrencyMismatch(f"{self.currency} and {other.currency} do not mix")

    def __add__(self, other: "Money") -> "Money":
        self._same(other)
        return Money(self.minor + other.minor, self.currency)

    def __sub__(self, other: "Money") -> "Money":
        self._same(other)
        return Money(self.minor - other.minor, self.currency)

    def __neg__(self) -> "Money":
        return Money(-self.minor, self.currency)

    def __abs__(self) -> "Money":
        return Money(abs(self.minor), self.currency)

    def __mul__(self, factor: int) -> "Money":
        if not isinstance(factor, int):
            raise TypeError("money can be multiplied by whole numbers; use scale() for others")
        return Money(self.minor * factor, self.currency)

    __rmul__ = __mul__

    def __lt__(self, other: "Money") -> bool:
        self._same(other)
        return self.minor < other.minor

    def __le__(self, other: "Money") -> bool:
        self._same(other)
        return self.minor <= other.minor

    def __bool__(self) -> bool:
        return self.minor != 0

    def scale(self, factor: Decimal) -> "Money":
        """Return this amount times a decimal factor, rounded half to even."""
        scaled = Decimal(self.minor) * Decimal(factor)
        return Money(int(scaled.quantize(Decimal(1), rounding=ROUND_HALF_EVEN)), self.currency)

    def convert(self, rate: Decimal, currency: str) -> "Money":
        """Return this amount in another currency, at `rate` units of it for one of ours."""
        major = Decimal(self.minor).scaleb(-digits_of(self.currency))
        return Money.of(major * Decimal(rate), currency)

    def allocate(self, ratios: "list[int]") -> "list[Money]":
        """Split into parts in the given ratios, without losing or inventing a minor unit.

        What does not divide evenly goes to the first parts, one minor unit each. A part with
        ratio zero gets nothing.
        """
        if not ratios or any(ratio < 0 for ratio in ratios) or sum(ratios) == 0:
            raise ValueError(f"ratios must be whole, not negative and not all zero: {ratios}")
        total = sum(ratios)
        parts = [int(self.minor * ratio / total) for ratio in ratios]
        rest = self.minor - sum(parts)
        for index in range(rest):
            parts[index] += 1
        return [Money(part, self.currency) for part in parts]

    def __str__(self) -> str:
        digits = digits_of(self.currency)
        sign = "-" if self.minor < 0 else ""
        units = abs(self.minor)
        if digits == 0:
            return f"{sign}{units} {self.currency}"
        whole, fraction = divmod(units, 10**digits)
        return f"{sign}{whole}.{fraction:0{digits}d} {self.currency}"


def total(amounts: "list[Money]", currency: str) -> Money:
    """Return the sum of amounts of one currency; of none, zero."""
    result = Money.zero(currency)
    for amount in amounts:
        result = result + amount
    return result
