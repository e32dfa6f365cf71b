"""Configuration in layers."""

from confkit.layers import Layers, merge
from confkit.parser import ParseError, dumps, loads
from confkit.schema import Field, Schema, SchemaError

__all__ = ["Field", "Layers", "ParseError", "Schema", "SchemaError", "dumps", "loads", "merge"]
