"""Environment variables that a library reads while it is imported.

Owns the one place where this process's environment is written. Does not know the libraries.
"""

import os
from collections.abc import Mapping


def set_variables(values: Mapping[str, str]) -> None:
    """Set environment variables of this process, over what is there."""
    os.environ.update(values)
