"""Real servers that misbehave as children: how they are started, asked and looked at."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.host import Host, Json
from tests.e2e.stress import (
    recorded,
)

Serve = Callable[..., Host]


def check_answers(host: Host) -> None:
    """Nothing was answered twice, and nothing went wrong inside."""
    answers = [told.json for told in host.heard if "id" in told.json and "method" not in told.json]
    times = collections.Counter(json.dumps(answer["id"]) for answer in answers)
    assert [id for id, count in times.items() if count > 1] == []
    assert "internal" not in host.stderr


def starts(workspace: Path, child: str) -> int:
    """Return how many processes of this child have been started."""
    return len(recorded(workspace / f"{child}.pids"))


def ask(host: Host, suite: str, subtool: str = "echo", **args: Any) -> int | str:
    arguments = {"action": "call", "subtool": subtool, "args": args}
    return host.ask("tools/call", {"name": suite, "arguments": arguments})


def text(result: Json) -> str:
    assert not result.get("isError"), result
    value: str = result["content"][0]["text"]
    return value


def echo(host: Host, suite: str, message: str = "hello") -> str:
    return text(host.call(suite, "echo", message=message))


def error(host: Host, id: int | str) -> Json:
    """The structured error of a suite call."""
    result = host.answer(id)["result"]
    assert result["isError"] is True, result
    found: Json = result["structuredContent"]["error"]
    return found


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []
