"""Paired experiments on context management for long-horizon coding agents."""

__version__ = "0.1.0"
