"""The explorer's server: on this machine only, for whoever knows the address.

Pages on the web can make a browser send requests to this machine. So the address holds a secret, and requests must name
this server as their host and, if they say where they come from, this page. Uploads are bounded and never unpickled.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from swallowtail import checks
from swallowtail.errors import ArgumentError
from swallowtail.explorer.study import Study
from swallowtail.io import save

LARGEST_UPLOAD = 64 << 20  # bytes: a float64 matrix of the largest size that the page takes, twice
LONGEST_LENGTH = 18  # digits of an upload's size that are read at all: Python refuses thousands
SECONDS = 30  # a client that sends nothing for so long is left
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"
PAGE = files("swallowtail.explorer") / "page"


def serve(study: Study, read: Callable[[Path], Any], port: int = 0) -> Explorer:
    """Start a server in a thread; ``study`` is started as well.

    Args:
        study: what the page shows first.
        read: reads an uploaded file, whose suffix says what it is.
        port: below 65536; 0 takes a free one.
    """
    if checks.integer("port", port, at_least=0) >= 2**16:
        raise ArgumentError("port", "a number below 65536", port, "try 0, for a free one")
    explorer = Explorer(study, read, port)
    study.start()
    threading.Thread(target=explorer.serve_forever, daemon=True).start()
    return explorer


class Explorer(ThreadingHTTPServer):
    """The server; ``url`` is where the page is."""

    daemon_threads = True

    def __init__(self, study: Study, read: Callable[[Path], Any], port: int = 0) -> None:
        self.study, self.read = study, read
        self.token = secrets.token_urlsafe(16)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """The address of the page, with its secret."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def take(self, name: str, body: bytes) -> None:
        """Another matrix, from a file of this name with these contents."""
        suffix = Path(name).suffix.lower()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"upload{suffix}"
            path.write_bytes(body)
            study = Study(Path(name).name, self.read(path))
        self.study.stop()
        self.study = study
        study.start()

    def close(self) -> None:
        """End the fits and the server."""
        self.study.stop()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Explorer
    timeout = SECONDS
    server_version, sys_version = "swallowtail", ""

    def do_GET(self) -> None:
        path, query = self._checked()
        if path is None:
            return
        study = self.server.study
        try:
            if path in ("", "index.html", "explorer.css", "explorer.js"):
                name = path or "index.html"
                self._send((PAGE / name).read_bytes(), TYPES[Path(name).suffix])
            elif path == "overview":
                self._send_json(study.overview())
            elif path == "matrix":
                self._send_json(study.matrix())
            elif path == "detail":
                self._send_json(study.detail(int(query["rotations"])))
            elif path == "operator":
                self._send_operator(study, int(query["rotations"]))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        except (KeyError, ValueError):
            self._refuse(HTTPStatus.NOT_FOUND, "no fit with so many rotations is ready")

    def do_POST(self) -> None:
        path, query = self._checked()
        if path is None:
            return
        length = self.headers.get("Content-Length", "")
        if path != "upload" or not length.isdecimal() or len(length) > LONGEST_LENGTH:
            self._refuse(HTTPStatus.BAD_REQUEST, "expected a file with a length")
            return
        if int(length) > LARGEST_UPLOAD:
            self.close_connection = True  # the rest of it is not read
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"expected at most {LARGEST_UPLOAD >> 20} MiB")
            return
        body = self.rfile.read(int(length))
        try:
            self.server.take(query.get("name", ""), body)
        except (ValueError, TypeError, OSError, MemoryError) as error:
            name = Path(query.get("name", "")).name
            self._refuse(HTTPStatus.BAD_REQUEST, _under_its_name(str(error), name))
            return
        self._send_json(self.server.study.overview())

    def _checked(self) -> tuple[str | None, dict[str, str]]:
        """The path below the secret, and the query; None if the request was refused."""
        hosts = {f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in hosts or (
            origin is not None and origin not in {f"http://{host}" for host in hosts}
        ):
            self._refuse(HTTPStatus.FORBIDDEN, "this page is for this machine only")
            return None, {}
        parts = urlsplit(self.path)
        token, _, path = unquote(parts.path).lstrip("/").partition("/")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the address lacks its secret: copy all of it")
            return None, {}
        return path, {key: values[0] for key, values in parse_qs(parts.query).items()}

    def _send_operator(self, study: Study, rotations: int) -> None:
        operator = study.operator(rotations)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operator.safetensors"
            save(operator, path)
            body = path.read_bytes()
        name = f"{Path(study.name).stem}-{rotations}.safetensors"
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name if c.isascii())
        self._send(
            body, "application/octet-stream", {"Content-Disposition": f'attachment; filename="{safe}"'}
        )

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(json.dumps(value).encode(), "application/json", status=status)

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send_json({"error": reason}, status)

    def _send(
        self,
        body: bytes,
        kind: str,
        headers: dict[str, str] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8" if kind.startswith("text") else kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")  # the address holds the secret
        self.send_header("Cache-Control", "no-store")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is the user's."""


def _under_its_name(text: str, name: str) -> str:
    """A reader names the temporary file; whoever dropped it knows it by its own name."""
    _, found, rest = text.partition(f"/upload{Path(name).suffix.lower()}")
    return name + rest if found else text
