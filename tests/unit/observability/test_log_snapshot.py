"""What the log serializer makes of secrets in every place and disguise, compared with a file byte for byte.

After an intended change, `SNAPSHOTS=write pytest tests/unit/observability/test_log_snapshot.py` writes the file anew.
"""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from switchboard_mcp.errors import failure
from switchboard_mcp.observability.log import Log, Style
from switchboard_mcp.redaction.arguments import compile_masks
from switchboard_mcp.redaction.redactor import NEVER_LOG, Redactor
from tests.cases import each_case

SNAPSHOTS = Path(__file__).parent / "snapshots"
SECRET = "s3cr3t/value+with=odd&parts"
HEXED = "00ff" + "A1b2" * 8
PIN = "4711-0815"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def events() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every place a secret may stand in, with its event."""
    inner = json.dumps({"a": [SECRET]})
    yield "plain", {"line": f"the value is {SECRET}, then more"}
    yield "event with " + SECRET, {}
    yield "named", {"env": dict.fromkeys(sorted(NEVER_LOG), "whatever it is"), "LEVEL": "info"}
    yield "in a name", {"map": {f"x-{SECRET}": 1}}
    yield "query", {"url": f"https://example.com/p?key={quote_plus(SECRET)}&page=2"}
    yield "path", {"url": f"https://example.com/{quote(SECRET)}/tail"}
    yield "userinfo", {"url": f"https://me:{quote(SECRET, safe='')}@example.com/"}
    yield "unregistered userinfo", {"url": "postgres://me:unknown-password@db/x"}
    yield "json", {"body": inner}
    yield "json in json", {"body": json.dumps(json.dumps(inner))}
    yield "base64", {"body": base64.b64encode(SECRET.encode()).decode()}
    yield "basic", {"seen": base64.b64encode(f"me:{SECRET}".encode()).decode()}
    yield (
        "base64 of more",
        {"body": [base64.b64encode(f"{'x' * n}{SECRET}yy".encode()).decode() for n in range(3)]},
    )
    yield "base64, url-safe", {"body": base64.urlsafe_b64encode(f"?{SECRET}?".encode()).decode().rstrip("=")}
    yield "hex", {"body": SECRET.encode().hex(), "digits": [HEXED, HEXED.lower(), HEXED.upper()]}
    yield "header", {"line": "Authorization: Bearer abc.def-123"}
    yield "bytes", {"raw": b"\x00" + SECRET.encode()}
    yield "failure", {"problem": failure("child_crashed", f"it said {SECRET}", stderr=[f"E: {SECRET}"])}
    yield "exception", {"problem": ValueError(f"no such user: {SECRET}")}
    masks = compile_masks(("pin", "card.number"))
    assert masks is not None
    args = {"user": "ada", "pin": PIN, "card": {"number": PIN, "holder": "Ada"}}
    yield "arguments under masks", {"args": masks.mask(args)}
    yield "innocent", {"tokens": 5, "budgetTokens": 1200, "path": "/etc/passwd", "secret": "", "ok": True}


def serialised(style: Style) -> bytes:
    redactor = Redactor()
    redactor.register(SECRET)
    redactor.register(HEXED)
    lines: list[bytes] = []
    log = Log("debug", style, redactor=redactor, write=lines.append, clock=lambda: 1_700_049_601.25)
    for event, fields in events():
        log.info(event, **fields)
    return b"".join(lines)


@each_case("style", ["json", "text"])
def test_log_serializer_redaction_snapshot(style: Style) -> None:
    snapshot = SNAPSHOTS / f"log-redaction.{style}"
    now = serialised(style)
    if os.environ.get("SNAPSHOTS") == "write":
        snapshot.write_bytes(now)
    assert now.decode() == snapshot.read_text()
    assert now == serialised(style)


@each_case("style", ["json", "text"])
def test_the_snapshot_itself_holds_no_secret(style: Style) -> None:
    text = (SNAPSHOTS / f"log-redaction.{style}").read_text()
    for part in (SECRET, HEXED, HEXED.lower(), HEXED.upper(), PIN, "unknown-password", SECRET.encode().hex()):
        assert part not in text
    for size in range(6, len(SECRET)):
        assert SECRET[-size:] not in text
    for shift in range(3):
        encoded = base64.b64encode(b"x" * shift + SECRET.encode()).decode()
        assert encoded[4:-4] not in text
