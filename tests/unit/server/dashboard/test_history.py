from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.server.dashboard import history
from switchboard_mcp.server.dashboard.call_log import CallLog
from switchboard_mcp.server.dashboard.history import (
    DAY_S,
    MINUTE_S,
    QUARTER_S,
    HistoryFile,
    HistoryRecorder,
    HistoryRow,
    database_errors,
)

NOW = 1_800_000_000


def opened(folder: Path, run: str = "a", most: int = 16_777_216) -> HistoryFile:
    return HistoryFile(str(folder / "state" / "history.db"), most, run)


def minute(at: int, calls: int = 1, child: str = "", errors: int = 0) -> HistoryRow:
    return HistoryRow(at, MINUTE_S, child, calls, errors, 10, {40: calls})


def test_rows_of_several_runs_are_summed_and_a_row_is_replaced_by_its_later_version(tmp_path: Path) -> None:
    opened(tmp_path).write([minute(NOW, 1)], NOW)
    opened(tmp_path).write([minute(NOW, 3, errors=1)], NOW)
    opened(tmp_path, "b").write([minute(NOW, 4), minute(NOW, 7, "git")], NOW)
    (point,) = opened(tmp_path).read(NOW - 60, MINUTE_S, "")
    assert (point.at, point.seconds, point.calls, point.errors, point.saved) == (NOW * 1000, 60, 7, 1, 20)
    assert point.p50 > 0
    (point,) = opened(tmp_path).read(NOW - 60, MINUTE_S, "git")
    assert point.calls == 7


def test_old_minutes_become_quarters_and_what_is_too_old_is_dropped(tmp_path: Path) -> None:
    file = opened(tmp_path)
    old = (NOW - 3 * DAY_S) // QUARTER_S * QUARTER_S
    rows = [minute(old + 60 * number) for number in range(15)]
    file.write([*rows, minute(NOW - 31 * DAY_S), minute(NOW - 60)], NOW)
    points = opened(tmp_path).read(NOW - 40 * DAY_S, MINUTE_S, "")
    assert [(point.at // 1000, point.seconds, point.calls) for point in points] == [
        (old, QUARTER_S, 15),
        (NOW - 60, MINUTE_S, 1),
    ]
    (wide,) = opened(tmp_path).read(NOW - 7 * DAY_S, 30 * DAY_S, "")
    assert wide.calls == 16


def test_the_file_stays_below_its_limit_by_dropping_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "THIN_EVERY_S", 0.0)
    limit = 300_000
    file = opened(tmp_path, most=limit)
    for batch in range(10):
        at = NOW - 20_000 + batch * 1_000
        file.write([minute(at, child=f"child {number}") for number in range(1_000)], NOW)
    assert (tmp_path / "state" / "history.db").stat().st_size < 2 * limit
    assert opened(tmp_path).read(NOW - 20_060, MINUTE_S, "child 1")[-1].at == (NOW - 11_000) // 60 * 60_000


def test_a_file_that_is_no_database_or_a_link_switches_history_off(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "history.db").write_bytes(b"x" * 9_000)
    with pytest.raises(database_errors()):
        opened(tmp_path).write([minute(NOW)], NOW)


async def test_calls_are_written_once_a_minute_and_read_by_range(tmp_path: Path) -> None:
    now = [float(NOW)]
    calls = CallLog(SimpleNamespace(records=None, redactor=Redactor()))  # type: ignore[arg-type]
    calls.clock = lambda: now[0]
    savings: Any = SimpleNamespace(points=[SimpleNamespace(saved=0)])
    log = MagicMock()
    recorder = HistoryRecorder(opened(tmp_path), calls, savings, log)
    for number in range(200):
        now[0] = NOW + number * 1.0
        calls.record(CallRecord("call", "", "git", "log", b"", "ok" if number % 2 else "error", 0.01))
    savings.points = [SimpleNamespace(saved=500)]
    await recorder.flush()
    points = opened(tmp_path).read(NOW - 60, MINUTE_S, "")
    assert sum(point.calls for point in points) == 200
    assert sum(point.errors for point in points) == 100
    assert sum(point.saved for point in points if point.calls == 0 or point.saved) == 500
    assert {point.seconds for point in points} == {MINUTE_S}
    calls.record(CallRecord("call", "", "git", "log", b"", "ok", 0.01))
    await recorder.flush()
    await recorder.flush()
    assert sum(point.calls for point in opened(tmp_path).read(NOW - 60, MINUTE_S, "")) == 201
    assert sum(point.calls for point in opened(tmp_path).read(NOW - DAY_S, QUARTER_S, "git")) == 201
    log.warning.assert_not_called()


async def test_a_folder_that_cannot_be_written_ends_the_history_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    calls = CallLog(SimpleNamespace(records=None, redactor=Redactor()))  # type: ignore[arg-type]
    log = MagicMock()
    savings: Any = SimpleNamespace(points=[SimpleNamespace(saved=0)])
    recorder = HistoryRecorder(opened(tmp_path), calls, savings, log)
    for _ in range(2):
        calls.record(CallRecord("call", "", "git", "log", b"", "ok", 0.01))
        await recorder.flush()
    assert recorder.is_broken
    log.warning.assert_called_once()
