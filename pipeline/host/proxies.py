"""Which proxy the environment names for an address, by the variables that every tool reads.

`http_proxy` and `https_proxy` (or in capitals) by the address's scheme, `all_proxy` for both, and
`no_proxy` with the hosts that are reached without one. This very machine is always reached without.
Who may be asked through a proxy is the caller's decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_THIS_MACHINE = ("localhost", "127.", "::1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proxy:
    """An HTTP proxy, and who named it."""

    host: str
    port: int
    variable: str
    """The environment variable."""
    credentials: str | None = None
    """`USER:PASSWORD`, quoted as in a URL; never shown."""

    @property
    def url(self) -> str:
        """The proxy as libraries want it."""
        return f"http://{self.credentials + '@' if self.credentials else ''}{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port} of ${self.variable}"


def proxy_for(url: str, env: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for `url`, None where it is reached directly.

    Raises:
        ValueError: the proxy is no `http://HOST:PORT`.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host.startswith(_THIS_MACHINE):
        return None
    variables = (f"{parts.scheme}_proxy", "all_proxy")
    named = [name for v in variables for name in (v, v.upper()) if env.get(name)]
    if not named or _is_excluded(host, env.get("no_proxy") or env.get("NO_PROXY") or ""):
        return None
    return _parsed(named[0], env[named[0]])


def _is_excluded(host: str, no_proxy: str) -> bool:
    """Return whether `host` is one of the list's hosts, or in one of its domains."""
    names = [entry.strip().rpartition("://")[2].lstrip(".*") for entry in no_proxy.split(",")]
    return no_proxy.strip() == "*" or any(
        name and f".{host}".endswith(f".{name.partition(':')[0]}") for name in names
    )


def _parsed(variable: str, value: str) -> Proxy:
    parts = urlsplit(value if "://" in value else f"http://{value}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(
            f"${variable} names no proxy of the form http://HOST:PORT; correct it, or list the "
            "server's host in NO_PROXY"
        )
    credentials, at, _ = parts.netloc.rpartition("@")
    return Proxy(
        host=parts.hostname,
        port=parts.port or 80,
        variable=variable,
        credentials=credentials if at else None,
    )
