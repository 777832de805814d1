from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from switchboard_mcp.config.models import Config
from switchboard_mcp.core.redaction import Redactor
from switchboard_mcp.edge.dashboard_live import MOST_CALLS, Live


class Record:
    """An audit record, as far as a live one knows it."""

    deny = True
    trouble = None

    def __init__(self) -> None:
        self.pending: list[tuple[object, ...]] = []
        self.roused = 0

    def rouse(self) -> None:
        self.roused += 1

    def refusal(self) -> None:
        return None


def services(audit: Record | None = None) -> Any:
    redactor = Redactor()
    redactor.register("hunter2-hunter2")
    loop = asyncio.get_running_loop()
    return SimpleNamespace(audit=audit, loop=loop, redactor=redactor, start_task=None, log=None, replicas=None)


def suite(name: str, chain: object = None) -> Any:
    return SimpleNamespace(name=f"{name}_suite", source=name, chain=chain, exposure="suite")


def gateway(*suites: Any) -> Any:
    every = {each.name: each for each in suites}
    view = SimpleNamespace(suites=every)
    return SimpleNamespace(all=every, every_view=lambda: [view])


async def test_while_nobody_looks_suites_are_as_they_were() -> None:
    audit = Record()
    kept = SimpleNamespace(audit=audit, now=asyncio.get_running_loop().time, gates=None)
    plain, recorded = suite("plain"), suite("recorded", kept)
    live = Live(services())
    live.begin(gateway(plain, recorded), Config())
    assert plain.chain.audit is live
    assert kept.audit is live
    live.end()
    assert plain.chain is None
    assert recorded.chain is kept
    assert kept.audit is audit
    assert kept.now == asyncio.get_running_loop().time


async def test_what_is_seen_goes_on_to_the_record_with_its_arguments_and_is_kept_without() -> None:
    audit = Record()
    live = Live(services(audit))
    live.record("call", "ann", "git", "log", b'{"a":1}', "ok", 0.002)
    live.record("call", "ann", "git", "hunter2-hunter2", b"{}", "subtool_unknown", 0.004)
    assert audit.pending == []
    await asyncio.sleep(0)
    assert [(entry[3], entry[4]) for entry in audit.pending] == [
        ("log", b'{"a":1}'),
        ("hunter2-hunter2", b"{}"),
    ]
    assert audit.roused == 1
    first = next(iter(live.since(0)))
    assert (first.seq, first.subtool, first.outcome, first.ms) == (1, "log", "ok", 2.0)
    assert "hunter2" not in repr(live.calls)
    tally = live.tallies["git"]
    assert (tally.calls, tally.errors, tally.latency()) == (2, 1, {"p50": 2.0, "p95": 4.0})
    assert live.deny is True


async def test_what_was_not_handed_on_yet_is_when_nobody_looks_any_more() -> None:
    audit = Record()
    live = Live(services(audit))
    live.record("call", "ann", "git", "log", b"", "ok", 0.002)
    live.end()
    assert len(audit.pending) == 1


@pytest.mark.parametrize("count", [1, MOST_CALLS + 50])
async def test_only_so_many_calls_are_kept(count: int) -> None:
    live = Live(services())
    for _ in range(count):
        cast(list[object], live.pending).append(("call", "", "git", "log", b"", "ok", 0.001, 1.0))
    live.flush()
    assert (len(live.calls), live.seq) == (min(count, MOST_CALLS), count)
