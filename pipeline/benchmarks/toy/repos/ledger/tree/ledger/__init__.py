"""Double-entry bookkeeping from a plain text journal."""

from ledger.journal import Entry, Journal, JournalError, Posting
from ledger.money import CurrencyMismatch, Money

__all__ = ["CurrencyMismatch", "Entry", "Journal", "JournalError", "Money", "Posting"]
