from decimal import Decimal

from ledger.money import CurrencyMismatch, Money, digits_of, total


def eur(text):
    return Money.of(text, "EUR")


def raises(kind, call, *arguments):
    try:
        call(*arguments)
    except kind:
        return True
    raise AssertionError(f"{kind.__name__} was not raised")


def test_parse_reads_grouped_digits():
    assert Money.parse("1,250.00 EUR") == Money(125000, "EUR")
    assert Money.parse("- 3.5 EUR") == Money(-350, "EUR")


def test_parse_refuses_an_amount_without_currency():
    assert raises(ValueError, Money.parse, "12.50")


def test_currencies_have_their_own_digits():
    assert Money.parse("500 JPY").minor == 500
    assert Money.parse("1.234 BHD").minor == 1234
    assert digits_of("XYZ") == 2


def test_rounding_is_half_to_even():
    assert eur("0.125").minor == 12
    assert eur("0.135").minor == 14


def test_currencies_do_not_mix():
    assert raises(CurrencyMismatch, lambda: eur("1") + Money.of("1", "USD"))
    assert raises(CurrencyMismatch, lambda: eur("1") < Money.of("2", "USD"))


def test_text_form():
    assert str(eur("-0.05")) == "-0.05 EUR"
    assert str(Money(12, "JPY")) == "12 JPY"


def test_allocate_gives_the_rest_to_the_first_parts():
    assert [part.minor for part in eur("1.00").allocate([1, 1, 1])] == [34, 33, 33]
    assert [part.minor for part in eur("0.05").allocate([3, 1])] == [4, 1]


def test_allocate_refuses_bad_ratios():
    assert raises(ValueError, eur("1").allocate, [])
    assert raises(ValueError, eur("1").allocate, [1, -1])


def test_convert_and_scale():
    assert eur("100").convert(Decimal("1.1"), "USD") == Money.of("110", "USD")
    assert eur("100").convert(Decimal("160"), "JPY") == Money(16000, "JPY")
    assert eur("10").scale(Decimal("0.333")) == eur("3.33")


def test_total_of_none_is_zero():
    assert total([], "EUR") == Money.zero("EUR")
    assert total([eur("1"), eur("2")], "EUR") == eur("3")
