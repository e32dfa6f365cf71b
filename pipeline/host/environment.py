"""The environment of this process, read here and passed down as values.

Owns every look at environment variables, so that the rest of the package is a function of its
arguments. Does not decide what a variable means.
"""

import os


def environment() -> dict[str, str]:
    """Return a copy of this process's environment variables."""
    return dict(os.environ)
