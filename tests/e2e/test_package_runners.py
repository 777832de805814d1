"""Package runners in a sandbox: download with network in one phase, run without it in the next, and offline later."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.e2e.shell import answered, run
from tests.e2e.workspaces import add_child, configure

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("npx") is None, reason="sandboxes are Linux; needs npx"
)
PACKAGE = {
    "name": "tiny-server",
    "version": "1.0.0",
    "type": "module",
    "bin": {"tiny-server": "index.js"},
    "scripts": {"postinstall": "node install.js"},
}
# What the script of a package finds while it is installed.
INSTALL = """
import { existsSync, writeFileSync } from "node:fs";
const seen = { secret: process.env.SECRET ?? null, workspace: existsSync(process.env.npm_config_probe) };
writeFileSync("installed.json", JSON.stringify(seen));
"""


def tarball() -> bytes:
    files = {
        "package/package.json": json.dumps(PACKAGE).encode(),
        "package/install.js": INSTALL.encode(),
        "package/index.js": (REPO / "tests/children/tiny_server.js").read_bytes(),
    }
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


@contextmanager
def registry() -> Iterator[int]:
    """A registry of npm with one package, and its port."""
    archive = tarball()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = archive
            if not self.path.endswith(".tgz"):
                address = f"http://127.0.0.1:{server.server_port}/tiny-server.tgz"
                integrity = f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"
                version = {**PACKAGE, "dist": {"tarball": address, "integrity": integrity}}
                packument = {
                    "name": "tiny-server",
                    "dist-tags": {"latest": "1.0.0"},
                    "versions": {"1.0.0": version},
                }
                body = json.dumps(packument).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_package_is_downloaded_once_and_runs_without_the_network_it_came_through(workspace: Path) -> None:
    add_child(workspace, "tiny", ["npx", "-y", "tiny-server@1.0.0", "--flag"], env={"SECRET": "mine"})
    configure(workspace, {"suites": {"tiny": {"sandbox": "workspace"}}})
    with registry() as port:
        variables = {
            "npm_config_registry": f"http://127.0.0.1:{port}",
            "npm_config_probe": str(workspace / "switchboard.config.json"),
            "npm_config_ignore_scripts": "false",
            "HOME": str(workspace.parent),
        }
        question = ("call", "tiny", "probe", json.dumps({"port": port, "file": str(workspace / "written")}))
        first = json.loads(answered(run(workspace, *question, **variables)))
        assert first["args"] == ["--flag"]
        assert first["package"] in ("EROFS", "EACCES")
        assert first["workspace"] == "done"
        assert first["registry"] == "ECONNREFUSED"  # its loopback is its own
        assert first["secret"] == "mine"
        assert first["installation"] == {"secret": None, "workspace": False}
    again = json.loads(answered(run(workspace, *question, **variables)))
    assert again == first
    updated = answered(run(workspace, "sandbox", "update", "tiny", **variables))
    assert "tiny" in updated
    failed = run(workspace, *question, **variables)
    assert failed.returncode == 1
    assert "the package tiny-server@1.0.0 could not be installed" in failed.stderr
    assert "Its first start needs the network" in failed.stderr
