"""The process beside ours that writes the audit record while there are many records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.observability.audit.audit_log import MANY, AuditLog
from switchboard_mcp.observability.audit.verification import entries, verify
from switchboard_mcp.observability.audit.writer_process import WriterGoneError, WriterProcess
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import Redactor
from tests.cases import each_case
from tests.patience import PATIENCE_S
from tests.processes import lives

FOLDER = ".switchboard/audit"
WINDOW_S = 0.02


def until(true: Callable[[], bool]) -> bool:
    """Another process is at it: look until it is so."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    return any(true() or pause.wait(0.01) for _ in iter(lambda: time.monotonic() < deadline, False))


def scribes(pid: int | None = None) -> list[psutil.Process]:
    return [
        one for one in psutil.Process(pid).children() if lives(one) and "switchboard-audit" in one.cmdline()
    ]


def recorded(workspace: Path) -> list[str]:
    return [entry.outcome for entry in entries(str(workspace / FOLDER)) if entry.kind == "call"]


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    audit = AuditLog(Settings(), str(tmp_path), Redactor(), masks={"bank": ["pin"]}, window_s=WINDOW_S)
    audit.start()
    return audit


def fill(audit: AuditLog, start: int, count: int) -> None:
    for number in range(start, start + count):
        audit.record(CallRecord("call", "alice", "git", "status", b'{"n":%d}' % number, str(number), 0.01))


def test_few_records_need_no_process(audit: AuditLog, tmp_path: Path) -> None:
    for batch in range(5):
        fill(audit, batch * 10, 10)
        assert until(lambda: len(recorded(tmp_path)) == batch * 10 + 10)  # noqa: B023 - looked at at once
    assert scribes() == []
    audit.close()


def test_many_records_are_written_by_one_process_into_one_chain(audit: AuditLog, tmp_path: Path) -> None:
    fill(audit, 0, 5 * MANY)
    assert until(lambda: len(recorded(tmp_path)) == 5 * MANY)
    assert len(scribes()) == 1
    fill(audit, 5 * MANY, 3)
    audit.close()
    assert recorded(tmp_path) == [str(number) for number in range(5 * MANY + 3)]
    assert verify(str(tmp_path / FOLDER)).ok
    assert scribes() == []


def test_equal_arguments_have_equal_hashes_whoever_writes_and_masks_count(
    audit: AuditLog, tmp_path: Path
) -> None:
    audit.record(CallRecord("call", child="bank", args=b'{"pin":"1234"}', outcome="first"))
    assert until(lambda: len(recorded(tmp_path)) == 1)
    fill(audit, 0, MANY)
    assert until(lambda: len(recorded(tmp_path)) == MANY + 1)
    assert scribes()
    audit.record(CallRecord("call", child="bank", args=b'{"pin":"5678"}', outcome="last"))
    audit.close()
    found = {entry.outcome: entry.args for entry in entries(str(tmp_path / FOLDER))}
    assert found["first"] == found["last"]


def test_secrets_are_masked_there_too_also_those_that_become_known_later(tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.register("hunter2-hunter2")
    audit = AuditLog(Settings(), str(tmp_path), redactor, window_s=WINDOW_S)
    audit.start()
    audit.record(CallRecord("call", "hunter2-hunter2", outcome="early"))
    fill(audit, 0, MANY)
    assert until(lambda: len(recorded(tmp_path)) == MANY + 1)
    redactor.register("correct-horse-battery")
    audit.record(CallRecord("call", "correct-horse-battery", outcome="late"))
    audit.close()
    written = b"".join(path.read_bytes() for path in (tmp_path / FOLDER).glob("*.jsonl"))
    assert b'"late"' in written
    assert b"hunter2" not in written
    assert b"correct-horse" not in written


def test_where_it_is_killed_we_write_ourselves(audit: AuditLog, tmp_path: Path) -> None:
    fill(audit, 0, MANY)
    assert until(lambda: len(recorded(tmp_path)) == MANY)
    (scribe,) = scribes()
    scribe.kill()
    fill(audit, MANY, 2 * MANY)
    audit.close()
    assert recorded(tmp_path) == [str(number) for number in range(3 * MANY)]
    assert verify(str(tmp_path / FOLDER)).ok
    assert audit.write_failure is None
    assert scribes() == []


def test_what_it_cannot_write_is_our_trouble(tmp_path: Path) -> None:
    scribe = WriterProcess(str(tmp_path), Settings(path="file/audit"), {})
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        scribe.append([CallRecord("call", outcome="ok", duration_s=0.1, at=1.0)], 0, Redactor())
    scribe.close()
    with pytest.raises(WriterGoneError):
        scribe.append([], 0, Redactor())


PARENT = """
import sys, time
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.audit.audit_log import MANY, AuditLog

audit = AuditLog(Settings(), sys.argv[1], Redactor())
audit.start()
for number in range(2 * MANY):
    audit.record(CallRecord("call", outcome=str(number)))
print("recorded", flush=True)
time.sleep(60)
"""


@each_case("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_us_however_we_end(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"recorded\n"
        assert until(lambda: len(scribes(parent.pid)) == 1)
        (scribe,) = scribes(parent.pid)
        os.killpg(parent.pid, number) if number is signal.SIGINT else parent.send_signal(number)
        parent.wait()
    assert until(lambda: not lives(scribe))
    assert verify(str(tmp_path / FOLDER)).ok
