"""Decides what needs attention, most urgent first: pure, from what the dashboard knows already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from switchboard_mcp.errors import Failure

Level = Literal["error", "warning", "info"]
LEVELS: tuple[Level, ...] = ("error", "warning", "info")
MAX_ITEMS = 100
BROKEN = frozenset({"unhealthy", "quarantined", "absent"})


class AttentionItem(Struct, frozen=True):
    """Something to look at. `view` and `id` name the page and the object; `hint` says what to do."""

    level: Level
    kind: str
    text: str
    hint: str = ""
    view: str = "overview"
    id: str = ""


class ServerFacts(Struct, kw_only=True):
    """What is known of the server beside its children. Failures and texts are redacted."""

    disabled: Failure | None = None
    audit: Failure | None = None
    approvals: int = 0
    warnings: list[str] = []
    bus: str = ""
    bus_hint: str = ""


def attention(rows: Iterable[Mapping[str, Any]], facts: ServerFacts) -> list[AttentionItem]:
    """Return what needs attention, the most urgent first."""
    items: list[AttentionItem] = []
    if facts.disabled is not None:
        items.append(_failure("server", facts.disabled))
    if facts.audit is not None:
        items.append(_failure("audit", facts.audit, "audit"))
    if facts.approvals:
        calls = "1 call waits" if facts.approvals == 1 else f"{facts.approvals} calls wait"
        items.append(AttentionItem("warning", "approval", f"{calls} for a decision.", "", "approvals"))
    if facts.bus:
        items.append(AttentionItem("error", "bus", facts.bus, facts.bus_hint))
    for row in rows:
        items += _of_child(row)
    items += [AttentionItem("warning", "config", text) for text in facts.warnings]
    items.sort(key=lambda item: LEVELS.index(item.level))
    return items[:MAX_ITEMS]


def _of_child(row: Mapping[str, Any]) -> list[AttentionItem]:
    id, items = str(row["id"]), []
    problem = row.get("trouble")
    if isinstance(problem, Failure) and (row.get("health") in BROKEN or row.get("lockTrouble") is not None):
        items.append(_failure("child", problem, "suites", id))
    elif row.get("health") in BROKEN:
        items.append(AttentionItem("error", "child", f"'{id}' is {row['health']}.", "", "suites", id))
    if row.get("drift"):
        changes = f"{row['drift']} change{'' if row['drift'] == 1 else 's'}"
        text = f"'{id}' offers other tools than its lock: {changes}."
        items.append(AttentionItem("warning", "drift", text, "Look at them, then accept them.", "suites", id))
    if row.get("sandboxBroken"):
        promises = ", ".join(row["sandboxBroken"])
        text = f"The sandbox of '{id}' does not keep all promises here: {promises}."
        items.append(
            AttentionItem("warning", "sandbox", text, "Run `switchboard sandbox show`.", "suites", id)
        )
    return items


def _failure(kind: str, problem: Failure, view: str = "overview", id: str = "") -> AttentionItem:
    return AttentionItem("error", kind, problem.message, problem.hint or "", view, id)
