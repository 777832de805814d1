#!/usr/bin/env python3
"""The client of the conformance suite's authorization scenarios: `auth_client.py URL`, which is Switchboard.

It does what a user does: calls a tool of the server at the URL with `switchboard call`, and where that fails for want
of a login, runs `switchboard login`, visits the address that it shows, and calls again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

PATIENCE_S = 180.0
SWITCHBOARD = str(Path(sys.executable).with_name("switchboard"))
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
DOCUMENT = "https://conformance-test.local/client-metadata.json"
TOOL = "test-tool"
# More calls than any scenario has use for: each may be answered by a login.
CALLS = 3


def main() -> int:
    url = sys.argv[-1]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        workspace = Path(folder)
        child = {"type": "http", "url": url, "oauth": client(url, workspace)}
        (workspace / "switchboard.config.json").write_text(json.dumps({"mcpServers": {"fixture": child}}))
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(workspace / "cache"),
            "XDG_STATE_HOME": str(workspace / "state"),
        }
        for _ in range(CALLS):
            call = subprocess.run(
                [SWITCHBOARD, "call", "fixture", TOOL],
                cwd=workspace,
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            sys.stderr.write(call.stderr)
            if call.returncode == 0 and SCENARIO != "auth/authorization-server-migration":
                return 0
            if "switchboard login" not in call.stderr and call.returncode:
                return call.returncode
            if call.returncode and not log_in(workspace, environment):
                return 1
    return 0


def client(url: str, workspace: Path) -> dict[str, Any]:
    """The OAuth client that an administrator would configure."""
    if "client_id" not in CONTEXT:
        return {"clientMetadataUrl": DOCUMENT}
    known = {"clientId": CONTEXT["client_id"]}
    if "private_key_pem" in CONTEXT:
        key = workspace / "key.pem"
        key.write_text(CONTEXT["private_key_pem"])
        return {**known, "grant": "client_credentials", "privateKeyFile": str(key), "issuer": issuer(url)}
    known["clientSecret"] = CONTEXT["client_secret"]
    if SCENARIO == "auth/client-credentials-basic":
        return {**known, "grant": "client_credentials", "issuer": issuer(url)}
    return known


def issuer(url: str) -> str:
    """The authorization server's name, which an administrator knows."""
    parts = urlsplit(url)
    with urlopen(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}") as page:
        return str(json.load(page)["authorization_servers"][0])


def log_in(workspace: Path, environment: dict[str, str]) -> bool:
    """Run the command, and be its user and browser."""
    login = subprocess.Popen(
        [SWITCHBOARD, "login", "fixture", "--no-browser"],
        cwd=workspace,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert login.stderr is not None
    with login:
        for line in login.stderr:
            sys.stderr.write(line)
            if line.strip().startswith("http"):
                try:
                    urlopen(line.strip(), timeout=PATIENCE_S).close()
                except OSError as problem:
                    sys.stderr.write(f"{problem}\n")
                    login.kill()
    return login.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
