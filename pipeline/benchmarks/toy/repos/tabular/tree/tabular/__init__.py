"""Small tables without big libraries."""

from tabular.reader import ReadError, read, write
from tabular.render import markdown, text
from tabular.table import Table, TableError

__all__ = ["ReadError", "Table", "TableError", "markdown", "read", "text", "write"]
