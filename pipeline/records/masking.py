"""Keys and home folders in texts that are written out: what names a person or opens a door.

Known shapes of keys only: a rule that guesses would change code. A home folder becomes `~`, also in
the form in which tools name their folders after a path (`-Users-name-project`).
"""

import re

MASK = "[key]"

_KEYS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)-(?:[a-z]+-)*[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"
    r"|\bhf_[A-Za-z0-9]{20,}|\bxox[abposr]-[\w-]{10,}|\bAIza[\w-]{30,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}"
    r"|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",
    re.DOTALL,
)
_NAMED = re.compile(
    r"(?P<name>\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)[ \t]*=[ \t]*[\"']?"
    r"|(?i:\bauthorization:[ \t]*(?:bearer|basic|token)[ \t]+|\bx-api-key:[ \t]*))"
    # Code that reads a key has dots and brackets in it, and rarely a digit.
    r"(?=\S*\d)[A-Za-z0-9_+/=-]{8,}(?![.\[(\w])"
)
_HOMES = re.compile(r"(?:/home/|/Users/|/mnt/c/Users/|[A-Za-z]:\\+Users\\+)[^/\\\s\"'`:;,<>|*)]+")
_HOMES_IN_NAMES = re.compile(r"(?<![A-Za-z0-9])-(?:home|Users)-[A-Za-z0-9_.]+")


def masked(text: str) -> str:
    """Return the text with keys as `[key]` and home folders as `~`."""
    text = _KEYS.sub(MASK, text)
    text = _NAMED.sub(lambda found: found["name"] + MASK, text)
    return _HOMES_IN_NAMES.sub("-~", _HOMES.sub("~", text))
