"""The half of the registry that takes blobs: into the upload itself, or in parts somewhere else."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

UPLOAD_FAULTS = (
    "refuse",  # status 500
    "drop",  # the connection ends in the middle of a part
    "lost answer",  # all of a part is taken, but nobody is told
    "forget",  # what was sent so far
)


@dataclass
class Upload:
    """What has come of one blob."""

    data: bytearray = field(default_factory=bytearray)
    parts: dict[int, bytearray] = field(default_factory=dict)
    """By offset, of those that went elsewhere."""

    def content(self) -> bytes:
        return bytes(self.data) or b"".join(part for _, part in sorted(self.parts.items()))


@dataclass
class Uploads:
    """Uploads that are on their way, and what goes wrong with them."""

    redirects: bool = False
    """Whether parts go somewhere else, as with Ollama's; nobody reads one that is sent here all the same."""
    knows_positions: bool = True
    mountable: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Blobs of other repositories, by their names and digests."""
    fault: Callable[[], str | None] = lambda: None
    """Asked for each part."""
    running: dict[str, Upload] = field(default_factory=dict)
    num_bytes: int = 0
    """That were taken in all."""
    etags: list[str] = field(default_factory=list)

    def begin(self) -> str:
        name = uuid.uuid4().hex
        self.running[name] = Upload()
        return name


class UploadHandler(BaseHTTPRequestHandler):
    """A part of the registry's handler: http.server's methods for what writes."""

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        self.log_request_of_test()
        if not re.fullmatch(r"/v2/.+/blobs/uploads/", url.path):
            return self.reply(404)
        source = (query.get("from", [""])[0], query.get("mount", [""])[0])
        if blob := self.uploads.mountable.get(source):
            self.registry.contents.add_blob(blob)
            return self.reply(201)
        return self.reply(202, headers=self.next_of(self.uploads.begin()))

    def do_PATCH(self) -> None:
        self.log_request_of_test()
        name = urlsplit(self.path).path.removeprefix("/uploads/")
        upload = self.uploads.running.get(name)
        start = int(self.headers["Content-Range"].partition("-")[0])
        fault = self.uploads.fault()
        if fault == "forget":
            self.uploads.running.clear()
        if fault == "forget" or upload is None:
            self.close_connection = True
            return self.reply(404, b"upload unknown")
        if self.uploads.redirects:
            assert self.headers["X-Redirect-Uploads"] == "1"
            elsewhere = f"http://localhost:{self.registry.port}/elsewhere/{name}/{start}"
            self.close_connection = True  # without having read the part, as servers in Go do
            return self.reply(307, headers={"Location": elsewhere, **self.next_of(name, "Docker-Upload-")})
        if start != len(upload.data):
            return self.reply(416)
        return self.take(upload.data, fault, 202, self.next_of(name))

    def do_PUT(self) -> None:
        self.log_request_of_test()
        url = urlsplit(self.path)
        if match := re.fullmatch(r"/elsewhere/(\w+)/(\d+)", url.path):
            part = self.uploads.running[match[1]].parts.setdefault(int(match[2]), bytearray())
            part.clear()
            self.take(part, self.uploads.fault(), 200, {})
        elif match := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", url.path):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            self.registry.contents.add_manifest(match[1], match[2], data, self.headers["Content-Type"])
            self.reply(201)
        else:
            self.finish_upload(url.path.removeprefix("/uploads/"), parse_qs(url.query))

    def finish_upload(self, name: str, query: dict[str, list[str]]) -> None:
        upload = self.uploads.running.get(name)
        if upload is None or query["_state"] != ["s"]:
            return self.reply(404)
        if "sha256:" + hashlib.sha256(upload.content()).hexdigest() != query["digest"][0]:
            return self.reply(400, b"digest invalid")
        self.registry.contents.add_blob(upload.content())
        self.uploads.etags += query["etag"]
        del self.uploads.running[name]
        return self.reply(201)

    def get_position(self, name: str) -> None:
        upload = self.uploads.running.get(name)
        if upload is None or not self.uploads.knows_positions:
            return self.reply(404 if upload is None else 405)
        return self.reply(204, headers={"Range": f"0-{max(len(upload.data) - 1, 0)}", **self.next_of(name)})

    def take(self, data: bytearray, fault: str | None, status: int, headers: dict[str, str]) -> None:
        if fault == "refuse":
            self.close_connection = True
            return self.reply(500, b"not now")
        length = int(self.headers["Content-Length"])
        read = self.rfile.read(length // 2 if fault == "drop" else length)
        self.uploads.num_bytes += len(read)
        data += read
        if fault in ("drop", "lost answer"):
            self.close_connection = True
            return None
        return self.reply(status, headers=headers)

    def next_of(self, name: str, prefix: str = "") -> dict[str, str]:
        return {f"{prefix}Location": f"http://{self.registry.host}/uploads/{name}?_state=s"}

    @property
    def uploads(self) -> Uploads:
        return self.registry.behaviour.uploads

    def log_request_of_test(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.registry.requests.append((self.command, self.path, headers))
