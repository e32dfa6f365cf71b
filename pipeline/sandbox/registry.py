"""What a container registry says of an image without our fetching it.

Owns one question: an image's manifest digest and the size of its layers. Knows the registries'
own interface only as far as that needs, anonymously or with the password of an auth file; every
request has a timeout. An answer is a help and never a condition: images are fetched without it.
"""

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.records.failure import SandboxError

_TIMEOUT_S = 30.0
_MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_UNHELPFUL = (
    *(OSError, http.client.HTTPException),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""What comes of a registry that is not there, or of an answer that is none of a registry's."""
# The one registry whose interface is at another host than its name.
_HOSTS = {"docker.io": "registry-1.docker.io"}


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteImage:
    """An image as its registry describes it."""

    digest: str
    layers_bytes: int | None
    """Compressed, for linux/amd64; None where the registry does not say."""


class RegistryError(Exception):
    """The registry did not answer, or not as registries do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The parts of an image's full name."""

    host: str
    repository: str
    tag: str
    """Or the digest that takes its place."""

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """Return the parts of `host/repository[:tag][@digest]`; without either it is `latest`."""
        host, _, rest = text.partition("/")
        name, _, digest = rest.partition("@")
        repository, _, tag = name.partition(":")
        return cls(host=host, repository=repository, tag=digest or tag or "latest")


class Registry:
    """Asks registries."""

    def __init__(self, *, authfile: Path | None = None, https: bool = True) -> None:
        """Prepare.

        Args:
            authfile: in the form of Docker's `config.json`.
            https: False only for a registry on this machine.

        Raises:
            SandboxError: the auth file has another form.
            OSError: it cannot be read.
        """
        self._passwords = _passwords(authfile)
        self._scheme = "https" if https else "http"

    def describe(self, reference: str) -> RemoteImage:
        """Return what the registry says of an image.

        Raises:
            RegistryError: it says nothing that helps.
        """
        parts = Reference.parse(reference)
        try:
            digest, manifest = self._manifest(parts, parts.tag)
            if "manifests" in manifest:
                fitting = [
                    each["digest"]
                    for each in manifest["manifests"]
                    if each.get("platform", {}).get("architecture") == "amd64"
                ]
                _, manifest = self._manifest(parts, fitting[0])
            sizes = [int(layer["size"]) for layer in manifest.get("layers", [])]
        except _UNHELPFUL as error:
            raise RegistryError(f"{parts.host} on {reference}: {error}") from error
        return RemoteImage(digest=digest, layers_bytes=sum(sizes) if sizes else None)

    def digest(self, reference: str) -> str:
        """Return an image's manifest digest; registries do not count this as a download.

        Raises:
            RegistryError: the registry does not say.
        """
        parts = Reference.parse(reference)
        try:
            _, digest = self._ask(parts, parts.tag, method="HEAD")
        except _UNHELPFUL as error:
            raise RegistryError(f"{parts.host} on {reference}: {error}") from error
        if not digest.startswith("sha256:"):
            raise RegistryError(f"{parts.host} gives no digest of {reference}")
        return digest

    def _manifest(self, parts: Reference, name: str) -> tuple[str, Mapping[str, Any]]:
        body, digest = self._ask(parts, name, method="GET")
        return digest, json.loads(body)

    def _ask(self, parts: Reference, name: str, *, method: str) -> tuple[bytes, str]:
        host = _HOSTS.get(parts.host, parts.host)
        url = f"{self._scheme}://{host}/v2/{parts.repository}/manifests/{name}"
        headers = {"Accept": ", ".join(_MANIFEST_TYPES)}
        try:
            return _get(url, headers, method)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            error.close()
            if error.code != 401:
                raise
        headers["Authorization"] = self._authorization(challenge, parts.host)
        return _get(url, headers, method)

    def _authorization(self, challenge: str, host: str) -> str:
        """Return what answers a registry that wants to know who asks."""
        password = self._passwords.get(host)
        if challenge.lower().startswith("basic"):
            if password is None:
                raise ValueError("it wants a password: say --authfile")
            return f"Basic {password}"
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        query = {key: fields[key] for key in ("service", "scope") if key in fields}
        url = f"{fields['realm']}?{urllib.parse.urlencode(query)}"
        answer, _ = _get(url, {"Authorization": f"Basic {password}"} if password else {})
        reply = json.loads(answer)
        return f"Bearer {reply.get('token') or reply['access_token']}"


def _get(url: str, headers: Mapping[str, str], method: str = "GET") -> tuple[bytes, str]:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return answer.read(), answer.headers.get("Docker-Content-Digest", "")


def _passwords(authfile: Path | None) -> dict[str, str]:
    """Return the encoded `user:password` by host."""
    if authfile is None:
        return {}
    data = authfile.read_bytes()
    found = {}
    try:
        for address, entry in json.loads(data).get("auths", {}).items():
            host = urllib.parse.urlsplit(address).netloc if "://" in address else address
            auth = entry.get("auth", "")
            if host and ":" in base64.b64decode(auth or b"").decode(errors="replace"):
                found["docker.io" if host.endswith("docker.io") else host] = auth
    except (ValueError, TypeError, AttributeError) as error:
        raise SandboxError(
            f"{authfile} is no auth file in the form of Docker's config.json: {error}"
        ) from error
    return found
