"""Persistent HTTP connections to one server, one a thread.

Owns connecting, timeouts, and the difference between a request that never reached the server, one
that failed there, and an idle connection that had been closed meanwhile. A proxy is used where one
is passed in. Does not retry and does not read answers.
"""

import base64
import http.client
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from pipeline.host.proxies import Proxy

STALE_WITHIN_S = 1.0
"""A persistent connection that breaks this soon had been closed before the request."""


class NotSentError(Exception):
    """The request never reached the server."""


class TransientError(Exception):
    """The server failed on a request that it had."""


class _Slot:
    """A thread's connection, closed with the thread if not before."""

    connection: http.client.HTTPConnection | None = None

    def drop(self) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def __del__(self) -> None:
        self.drop()


class Connections:
    """Connections to one server. May be shared by threads."""

    def __init__(
        self,
        base_url: str,
        connect_timeout_s: float,
        read_timeout_s: float,
        api_key: str | None,
        clock: Callable[[], float] = time.monotonic,
        proxy: Proxy | None = None,
    ) -> None:
        parts = urlsplit(base_url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url is {base_url!r}; give http://HOST:PORT/v1")
        self.where = base_url
        """For messages: the address, and the way to it where there is a proxy."""
        self._https, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path
        self._connect_timeout_s, self._read_timeout_s = connect_timeout_s, read_timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._proxy, self._proxy_headers = proxy, _proxy_headers(proxy)
        if proxy is not None:
            self.where += f" through {proxy} (NO_PROXY={parts.hostname} goes without it)"
            if not self._https:
                # Such a proxy is sent the whole address; through one for https goes a tunnel.
                self._path = f"http://{parts.netloc}{parts.path}"
                self._headers |= self._proxy_headers
        self._clock = clock
        self._local = threading.local()
        self._slots: weakref.WeakSet[_Slot] = weakref.WeakSet()

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        return self.request("POST", path, body)

    def request(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Return status and body of the answer.

        Raises:
            NotSentError: no connection.
            TransientError: the connection broke, or the answer did not come in time or whole.
        """
        slot = self._slot()
        connection = slot.connection
        if connection is not None:
            started = self._clock()
            try:
                return self._exchange(connection, method, path, body)
            except (OSError, http.client.HTTPException) as error:
                slot.drop()
                closed = isinstance(error, http.client.RemoteDisconnected | ConnectionError)
                # A server closes idle connections: found at once, that is no failure of this call.
                if not closed or self._clock() - started > STALE_WITHIN_S:
                    raise TransientError(_words(error)) from error
        try:
            connection = slot.connection = self._connect()
        except OSError as error:
            raise NotSentError(f"cannot connect to {self.where}: {_words(error)}") from error
        try:
            return self._exchange(connection, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            slot.drop()
            raise TransientError(_words(error)) from error

    def open_answer(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Return an answer of which the head is read, and its connection, for the caller to close.

        Raises:
            NotSentError: no connection.
            TransientError: the connection broke, or no answer began in time.
        """
        try:
            connection = self._connect()
        except OSError as error:
            raise NotSentError(f"cannot connect to {self.where}: {_words(error)}") from error
        given = {name.lower() for name in headers}
        ours = {name: value for name, value in self._headers.items() if name.lower() not in given}
        try:
            connection.request(method, self._path + path, body, {**ours, **headers})
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransientError(_words(error)) from error

    def close(self) -> None:
        """Close the connections of all threads; none may be in use."""
        for slot in list(self._slots):
            slot.drop()

    def _slot(self) -> _Slot:
        slot: _Slot | None = getattr(self._local, "slot", None)
        if slot is None:
            slot = self._local.slot = _Slot()
            self._slots.add(slot)
        return slot

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        proxy = self._proxy
        host, port = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        connection = kind(host, port, timeout=self._connect_timeout_s)
        if proxy is not None and self._https:
            connection.set_tunnel(self._host, self._port, self._proxy_headers)
        connection.connect()
        connection.sock.settimeout(self._read_timeout_s)
        return connection

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        connection.request(method, self._path + path, body, self._headers)
        response = connection.getresponse()
        data = response.read()
        if response.will_close:
            self._slot().drop()
        return response.status, data


def fetch(
    url: str, *, timeout_s: float, body: bytes | None = None, proxy: Proxy | None = None
) -> bytes:
    """Return the body of one answer, over a connection of its own.

    Raises:
        OSError: no answer, or one that is an error.
    """
    proxies = {} if proxy is None else {"http": proxy.url, "https": proxy.url}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with opener.open(request, timeout=timeout_s) as response:
        data: bytes = response.read()
    return data


def _proxy_headers(proxy: Proxy | None) -> dict[str, str]:
    if proxy is None or proxy.credentials is None:
        return {}
    encoded = base64.b64encode(unquote(proxy.credentials).encode()).decode()
    return {"Proxy-Authorization": f"Basic {encoded}"}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
