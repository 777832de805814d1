"""Lines of a broker's log on the stderr of its sessions."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from switchboard_mcp.children.registry import ChildRegistry
from switchboard_mcp.observability.log import Log
from switchboard_mcp.server.session_logs import SessionLogs
from tests.unit.gateway.board import Board

SOURCE = Path(__file__).parents[3] / "src/switchboard_mcp"
CALL = re.compile(r'\.(?:debug|info|warning|error)\(\s*"([a-z_]+(?:\.[a-z_]+)*)"')
# What happens in a session, or quotes its calls, by the first word of the event.
OF_ONE_SESSION = frozenset(
    "ask broker child extensions host internal middleware programs sandbox serving stopping tools".split()
)


def event_names() -> set[str]:
    """Return the names of all events that the product logs."""
    names = (name for path in SOURCE.rglob("*.py") for name in CALL.findall(path.read_text()))
    return {name for name in names if "." in name or name in OF_ONE_SESSION}


def test_every_line_about_the_workspace_reaches_all_sessions_and_no_other_does() -> None:
    board = Board()
    broker = Log("debug", write=lambda line: True)
    logs = SessionLogs(broker, cast(ChildRegistry, SimpleNamespace(children={})))
    lines: dict[str, list[bytes]] = {"ann": [], "bob": []}
    for written in lines.values():
        logs.add(board.host().session, Log("debug", write=lambda line, to=written: to.append(line)))  # type: ignore[misc]
    wrong: list[tuple[str, list[str]]] = []
    for name in sorted(event_names()):
        for written in lines.values():
            written.clear()
        broker.warning(name)
        reached = [who for who, written in lines.items() if written]
        is_private = name.partition(".")[0] in OF_ONE_SESSION or name == "http.internal"
        if reached != ([] if is_private else ["ann", "bob"]):
            wrong.append((name, reached))
    board.close()
    assert not wrong
    assert {"mail.refused", "mail.overdue", "config.refused", "child.stderr"} <= event_names()
