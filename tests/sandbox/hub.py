"""A registry on this machine with one image, that can be as difficult as real ones."""

import base64
import gzip
import io
import json
import tarfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


class Hub:
    """The image, and how the registry behaves; the address is `host`."""

    host: str

    def __init__(self, *, password: str | None = None, scheme: str = "Bearer") -> None:
        """Describe a registry.

        Args:
            password: `user:password` that it wants, if it wants one.
            scheme: how it says that it wants to know who asks: `Bearer` or `Basic`.
        """
        self.password = password
        self.scheme = scheme
        self.blobs: dict[str, bytes] = {}
        self.manifest = json.dumps(self._image()).encode()
        self.n_refusals = 0
        """So many requests for manifests are refused before one is answered."""
        self.gate = threading.Event()
        """Layers are sent once it is set."""
        self.gate.set()
        self.asked: Counter[str] = Counter()

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    @property
    def layer(self) -> bytes:
        return list(self.blobs.values())[1]

    def write_authfile(self, path: Path, password: str) -> Path:
        auth = base64.b64encode(password.encode()).decode()
        path.write_text(json.dumps({"auths": {self.host: {"auth": auth}}}))
        return path

    def write_archive(self, path: Path) -> None:
        """Write the image as an OCI archive."""
        files = {"blobs/": b"", "blobs/sha256/": b""}
        files |= {f"blobs/sha256/{name[7:]}": data for name, data in self.blobs.items()}
        files[f"blobs/sha256/{self.digest[7:]}"] = self.manifest
        entry = {"mediaType": MANIFEST, "digest": self.digest, "size": len(self.manifest)}
        files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        write_tar(path, files)

    def write_docker_archive(self, path: Path) -> None:
        """Write the image as `docker save` does."""
        config = next(iter(self.blobs.values()))
        entry = {"Config": "config.json", "RepoTags": ["owner/image:1"], "Layers": ["layer.tar"]}
        files = {"config.json": config, "layer.tar": gzip.decompress(self.layer)}
        write_tar(path, {**files, "manifest.json": json.dumps([entry]).encode()})

    def _image(self) -> dict[str, Any]:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            info = tarfile.TarInfo("etc/made-for-a-test")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"yes"))
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer.getvalue())]},
        }
        entries = []
        for data, media in (
            (json.dumps(config).encode(), CONFIG),
            (gzip.compress(layer.getvalue()), LAYER),
        ):
            self.blobs[digest_of(data)] = data
            entries.append({"mediaType": media, "digest": digest_of(data), "size": len(data)})
        return {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": entries[0],
            "layers": entries[1:],
        }


def digest_of(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if name.endswith("/"):
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info, io.BytesIO(data))


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """Give the hub while it answers."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    hub.host = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        hub.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        last = self.path.rpartition("/")[2]
        if self.path.startswith("/token"):
            if self.hub.password is None or self._has_password():
                self._send(b'{"token": "secret"}', "application/json", with_body=with_body)
            else:
                self.send_error(401)
        elif not self._is_known():
            self._challenge()
        elif "/manifests/" in self.path:
            self.hub.asked["manifest"] += 1
            if self.hub.asked["manifest"] <= self.hub.n_refusals:
                self.send_error(429)
            elif last == "absent":
                self.send_error(404)
            else:
                self._send(self.hub.manifest, MANIFEST, with_body=with_body)
        elif last in self.hub.blobs:
            self.hub.asked["blob"] += 1
            self.hub.gate.wait(60)
            self._send(self.hub.blobs[last], "application/octet-stream", with_body=with_body)
        else:
            self.send_error(404)

    def _has_password(self) -> bool:
        said = self.headers.get("Authorization", "").removeprefix("Basic ")
        return base64.b64decode(said).decode() == self.hub.password

    def _is_known(self) -> bool:
        if self.hub.scheme == "Basic":
            return self._has_password()
        return bool(self.headers.get("Authorization") == "Bearer secret")

    def _challenge(self) -> None:
        self.send_response(401)
        realm = f'realm="http://{self.headers["Host"]}/token"'
        extra = ',service="test",scope="pull"' if self.hub.scheme == "Bearer" else ""
        self.send_header("WWW-Authenticate", f"{self.hub.scheme} {realm}{extra}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, body: bytes, media: str, *, with_body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", digest_of(body))
        self.end_headers()
        if with_body:
            self.wfile.write(body)
