from __future__ import annotations

import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from switchboard_mcp.cli.governance.audit import intact_records
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.errors import Failure
from switchboard_mcp.observability.audit import audit_log as audit_module
from switchboard_mcp.observability.audit.audit_log import AuditLog
from switchboard_mcp.observability.audit.hash_chain import ChainHead, marker_body, seal
from switchboard_mcp.observability.audit.segments import AuditFiles, segment_numbers
from switchboard_mcp.observability.audit.verification import entries, verify
from switchboard_mcp.observability.audit.writer import read_salt
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.redaction.redactor import MASK, Redactor
from tests.cases import each_case
from tests.patience import PATIENCE_S

FOLDER = ".switchboard/audit"


@contextmanager
def recording(workspace: Path, **settings: Any) -> Iterator[AuditLog]:
    audit = AuditLog(Settings(**settings), str(workspace), Redactor(), window_s=0)
    audit.start()
    try:
        yield audit
    finally:
        audit.close()


@each_case("link", [".switchboard", ".switchboard/audit"])
def test_a_folder_of_the_workspace_that_is_a_link_is_not_followed(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / "workspace" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with recording(tmp_path / "workspace") as audit:
        assert audit.write_failure is not None
        assert "symbolic link" in audit.write_failure.message
        audit.record(CallRecord("call"))
    assert list(outside.iterdir()) == []


def until(true: Callable[[], bool]) -> bool:
    """Another thread is at it: look until it is so."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    return any(true() or pause.wait(0.01) for _ in iter(lambda: time.monotonic() < deadline, False))


def folder(workspace: Path) -> str:
    return str(workspace / FOLDER)


def lines(workspace: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for number in segment_numbers(folder(workspace))
        for line in (workspace / FOLDER / f"audit-{number:06d}.jsonl").read_text().splitlines()
    ]


def first_file(workspace: Path) -> Path:
    return workspace / FOLDER / "audit-000001.jsonl"


def test_a_record_says_who_asked_for_what_and_how_it_ended(tmp_path: Path) -> None:
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", "alice", "git", "status", b'{"path":"/x"}', "ok", 0.02))
        audit.record(CallRecord("decision", "bob", "git", "push", outcome="subtool_denied"))
    begin, call, decision = lines(tmp_path)
    assert begin["kind"] == "begin"
    assert {name: call[name] for name in ("seq", "kind", "who", "child", "subtool", "outcome", "took")} == {
        "seq": 2,
        "kind": "call",
        "who": "alice",
        "child": "git",
        "subtool": "status",
        "outcome": "ok",
        "took": "100ms",
    }
    assert "took" not in decision
    assert "args" not in decision
    assert verify(folder(tmp_path)).ok


def test_arguments_are_recorded_as_a_hash_that_needs_the_salt_and_ignores_how_they_are_written(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        with recording(tmp_path / name) as audit:
            audit.record(CallRecord("call", args=b'{"a":1,"b":2}'))
            audit.record(CallRecord("call", args=b'{ "b" : 2, "a" : 1 }'))
            audit.record(CallRecord("call", args=b'{"a":2}'))
    (_, *one), (_, *two) = lines(tmp_path / "one"), lines(tmp_path / "two")
    assert one[0]["args"] == one[1]["args"] != one[2]["args"]
    assert one[0]["args"] != two[0]["args"]
    salt = (tmp_path / "one" / ".switchboard/audit-salt").read_bytes()
    assert one[0]["args"] == hmac.digest(salt, b'{"a":1,"b":2}', "sha256").hex()
    assert oct(os.stat(tmp_path / "one" / ".switchboard/audit-salt").st_mode & 0o777) == "0o600"


def test_the_chain_goes_on_in_the_next_process_and_in_the_next_file(tmp_path: Path) -> None:
    for _ in range(3):
        with recording(tmp_path, max_bytes=4096) as audit:
            for _ in range(40):
                audit.record(CallRecord("call", "alice", "git", "status", b"{}", "ok", 0.1))
    verdict = verify(folder(tmp_path))
    assert verdict.ok
    assert verdict.files >= 3
    numbers = [line["seq"] for line in lines(tmp_path)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert sum(line["kind"] == "call" for line in lines(tmp_path)) == 120


def test_the_oldest_files_go_and_the_rest_is_still_a_chain(tmp_path: Path) -> None:
    for _ in range(12):
        with recording(tmp_path, max_bytes=4096, keep=2) as audit:
            for _ in range(20):
                audit.record(CallRecord("call", "alice", "git", "status", b"{}", "ok", 0.1))
    verdict = verify(folder(tmp_path))
    assert verdict.ok
    assert verdict.files == 2
    assert verdict.first > 1


def changed(data: bytes) -> bytes:
    return data.replace(b'"outcome":"denied"', b'"outcome":"ok"')


def without_a_line(data: bytes) -> bytes:
    kept = data.splitlines(keepends=True)
    return b"".join(kept[:2] + kept[3:])


def swapped(data: bytes) -> bytes:
    kept = data.splitlines(keepends=True)
    return b"".join([*kept[:2], kept[3], kept[2], *kept[4:]])


def with_a_line_more(data: bytes) -> bytes:
    kept = data.splitlines(keepends=True)
    return b"".join([*kept[:3], kept[2], *kept[3:]])


def with_another_beginning(data: bytes) -> bytes:
    return data.replace(b'"prev":"0', b'"prev":"1', 1)


@each_case(
    ("tamper", "line"),
    [
        (changed, 3),
        (without_a_line, 3),
        (swapped, 3),
        (with_a_line_more, 4),
        (with_another_beginning, 1),
    ],
)
def test_verify_names_the_first_line_that_does_not_belong(
    tmp_path: Path, tamper: Callable[[bytes], bytes], line: int
) -> None:
    with recording(tmp_path) as audit:
        for outcome in ("ok", "denied", "ok", "ok"):
            audit.record(CallRecord("call", "alice", "git", "status", b"{}", outcome, 0.1))
    file = first_file(tmp_path)
    file.write_bytes(tamper(file.read_bytes()))
    verdict = verify(folder(tmp_path))
    assert (verdict.ok, verdict.file, verdict.line) == (False, file.name, line)
    assert verdict.reason


def test_a_file_that_is_gone_from_the_middle_is_named(tmp_path: Path) -> None:
    for _ in range(5):
        with recording(tmp_path, max_bytes=4096) as audit:
            for _ in range(30):
                audit.record(CallRecord("call", "alice", "git", "status", b"{}", "ok", 0.1))
    (tmp_path / FOLDER / "audit-000002.jsonl").unlink()
    verdict = verify(folder(tmp_path))
    assert (verdict.ok, verdict.file, verdict.reason) == (False, "audit-000002.jsonl", "is missing")


def test_lines_cut_off_at_the_end_are_noticed_by_a_head_kept_elsewhere(tmp_path: Path) -> None:
    with recording(tmp_path) as audit:
        for _ in range(4):
            audit.record(CallRecord("call", outcome="ok"))
    head = verify(folder(tmp_path)).head
    file = first_file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert verify(folder(tmp_path)).ok
    assert not verify(folder(tmp_path), contains=head).ok
    file.write_bytes(whole)
    assert verify(folder(tmp_path), contains=head).ok


@each_case("cut", [1, 20, 100])
def test_a_line_half_written_by_a_crash_is_set_aside_with_a_mark(tmp_path: Path, cut: int) -> None:
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="one"))
        audit.record(CallRecord("call", outcome="two"))
    file = first_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    torn = verify(folder(tmp_path))
    assert torn.ok
    assert torn.torn_bytes > 0
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="three"))
    assert [line.get("outcome", line["kind"]) for line in lines(tmp_path)] == [
        "begin",
        "one",
        "torn",
        "three",
    ]
    assert lines(tmp_path)[2]["count"] == torn.torn_bytes
    (aside,) = (tmp_path / FOLDER).glob("*.torn-*")
    assert aside.stat().st_size == torn.torn_bytes
    assert verify(folder(tmp_path)).ok


@each_case("left", [b"", b'{"seq":9'])
def test_a_file_whose_maker_died_before_its_first_line_continues_the_one_before(
    tmp_path: Path, left: bytes
) -> None:
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="one"))
    (tmp_path / FOLDER / "audit-000002.jsonl").write_bytes(left)
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="two"))
    assert verify(folder(tmp_path)).ok
    assert [line["outcome"] for line in lines(tmp_path) if line["kind"] == "call"] == ["one", "two"]


WRITER = """
import sys
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.audit.audit_log import AuditLog
audit = AuditLog(Settings(max_bytes=20_000, fsync="never"), sys.argv[1], Redactor(), window_s=0)
audit.start()
for _ in range(300):
    audit.record(CallRecord("call", sys.argv[2], "git", "status", b"{}", "ok", 0.1))
audit.close()
"""


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    names = ["alice", "bob", "carol"]
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    processes = [subprocess.Popen([*command, name]) for name in names]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    assert verify(folder(tmp_path)).ok
    calls = [entry.principal for entry in entries(folder(tmp_path)) if entry.kind == "call"]
    assert {name: calls.count(name) for name in names} == dict.fromkeys(names, 300)


KILLED = """
import sys
from switchboard_mcp.config.sections import AuditSettings as Settings
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.observability.call_record import CallRecord
from switchboard_mcp.observability.audit.audit_log import AuditLog
audit = AuditLog(Settings(), sys.argv[1], Redactor())
audit.start()
number = 0
while True:
    audit.record(CallRecord("call", "alice", "git", "status", b"{}", str(number), 0.1))
    number += 1
    if number % 2000 == 0:
        print(number, flush=True)
"""


def test_a_killed_process_leaves_a_chain_that_the_next_one_continues(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while not first_file(tmp_path).exists() or first_file(tmp_path).stat().st_size < 100_000:
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="after"))
    assert verify(folder(tmp_path)).ok
    outcomes = [entry.outcome for entry in entries(folder(tmp_path)) if entry.kind == "call"]
    assert outcomes == [*(str(number) for number in range(len(outcomes) - 1)), "after"]
    assert len(outcomes) > 1


def test_calls_that_cannot_be_recorded_are_refused_or_warned_of(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where the folder should be")
    warnings: list[Failure] = []
    for deny in (True, False):
        audit = AuditLog(
            Settings(path="blocked/audit"), str(tmp_path), Redactor(), fail_closed=deny, warn=warnings.append
        )
        audit.start()
        refusal = audit.refusal()
        assert (refusal is not None) is deny
        assert audit.write_failure is not None
        assert audit.write_failure.code == "audit_failed"
        assert "blocked/audit" in audit.write_failure.message
        audit.close()
    assert len(warnings) == 2


def test_records_of_the_time_of_a_full_disk_are_written_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    failed, written = threading.Event(), threading.Event()
    append = AuditFiles.append

    def moody(self: AuditFiles, bind: Any) -> None:
        if full:
            failed.set()
            raise OSError(28, "No space left on device")
        append(self, bind)
        written.set()

    monkeypatch.setattr(AuditFiles, "append", moody)
    monkeypatch.setattr(audit_module, "RETRY_S", 0.01)
    monkeypatch.setattr(audit_module, "MAX_PENDING", 2)
    with recording(tmp_path) as audit:
        for outcome in ("one", "two", "three"):
            audit.record(CallRecord("call", outcome=outcome))
        assert failed.wait(PATIENCE_S)
        assert until(lambda: audit._lost == 1)
        full = False
        assert written.wait(PATIENCE_S)
    assert audit.write_failure is None
    shown = [line.get("outcome", line["kind"]) for line in lines(tmp_path)]
    assert shown == ["begin", "lost", "one", "two"]
    assert lines(tmp_path)[1]["count"] == 1
    assert verify(folder(tmp_path)).ok


def test_a_batch_that_does_not_fit_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="one"))
    before = first_file(tmp_path).read_bytes()
    write = os.write

    def short(descriptor: int, data: Any) -> int:
        if len(data) > 100:
            return write(descriptor, bytes(data)[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short)
    with recording(tmp_path) as audit:
        audit.record(CallRecord("call", outcome="two"))
    assert audit.write_failure is not None
    assert first_file(tmp_path).read_bytes() == before


def test_names_are_redacted_and_clipped_also_where_a_secret_becomes_known_later(tmp_path: Path) -> None:
    redactor = Redactor()
    audit = AuditLog(Settings(), str(tmp_path), redactor, window_s=0)
    audit.start()
    redactor.register("correct-horse-battery")
    audit.record(CallRecord("call", "x correct-horse-battery", "git", "s" * 5000, outcome="\ud800"))
    audit.close()
    call = lines(tmp_path)[1]
    assert call["who"] == f"x {MASK}"
    assert len(call["subtool"]) == 200
    assert "correct-horse" not in first_file(tmp_path).read_text()


def test_arguments_under_masks_do_not_even_change_the_hash(tmp_path: Path) -> None:
    audit = AuditLog(Settings(), str(tmp_path), Redactor(), masks={"bank": ["pin"]}, window_s=0)
    audit.start()
    for child, pin in (("bank", "1234"), ("bank", "5678"), ("shop", "1234"), ("shop", "5678")):
        audit.record(CallRecord("call", child=child, args=json.dumps({"pin": pin}).encode()))
    audit.close()
    _, *calls = [line.get("args") for line in lines(tmp_path)]
    assert calls[0] == calls[1]
    assert len(set(calls)) == 3


def test_it_ends_whenever_it_is_asked_to(tmp_path: Path) -> None:
    pause = threading.Event()
    for number in range(40):
        audit = AuditLog(Settings(fsync="never"), str(tmp_path), Redactor(), window_s=0.002)
        audit.start()
        audit.record(CallRecord("call", outcome="ok"))
        pause.wait(number / 10_000)
        audit.close()
    assert sum(entry.kind == "call" for entry in entries(folder(tmp_path))) == 40


def test_a_salt_of_the_wrong_size_is_refused(tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_bytes(b"short")
    with pytest.raises(OSError, match="not a salt"):
        read_salt(str(salt))


# --- files that are gone ------------------------------------------------------------------------------


def _files(count: int) -> dict[str, list[int]]:
    """Deletions from so many files, by name: the positions that go."""
    everything = list(range(count))
    gone = {f"file {index + 1}": [index] for index in everything}
    gone |= {f"the first {end}": everything[:end] for end in range(2, count)}
    gone |= {f"the last {count - start}": everything[start:] for start in range(1, count - 1)}
    return gone | {"the middle": everything[1:-1], "all": everything}


FILES = 5


@pytest.fixture(scope="module", params=[0, FILES], ids=["all are kept", "the oldest went by themselves"])
def long_record(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of five files; with `keep`, older ones were removed before."""
    place, keep = tmp_path_factory.mktemp("record"), int(request.param)
    last = place / FOLDER / f"audit-{FILES + 2 if keep else FILES:06d}.jsonl"
    while not last.exists() or last.stat().st_size < 1024:
        with recording(place, max_bytes=4096, keep=keep) as audit:
            for _ in range(5):
                audit.record(CallRecord("call", "alice", "git", "status", b"{}", "ok", 0.1))
    assert len(list((place / FOLDER).glob("audit-*.jsonl"))) == FILES
    return place


@each_case("name", _files(FILES))
def test_no_file_can_be_deleted_unnoticed(long_record: Path, tmp_path: Path, name: str) -> None:
    head = verify(folder(long_record)).head
    place = Path(shutil.copytree(long_record, tmp_path / "copy"))
    assert verify(folder(place), contains=head).ok
    files = sorted((place / FOLDER).glob("audit-*.jsonl"))
    gone = _files(FILES)[name]
    for index in gone:
        files[index].unlink()
    cut_off = verify(folder(place), contains=head)
    assert not cut_off.ok
    # Without a hash from elsewhere, files that are gone from the very end leave no trace if all were kept.
    only_the_end = (
        gone == list(range(gone[0], FILES)) and gone[0] > 0 and files[0].name == "audit-000001.jsonl"
    )
    verdict = verify(folder(place))
    assert verdict.ok is only_the_end
    assert not only_the_end or cut_off.intact == "all"
    assert only_the_end or verdict.reason
    if gone[0] == 0 and name != "all":
        assert verdict.file == files[gone[-1]].name
        assert "audit.keep does not explain it" in verdict.reason
    if not verdict.ok and verdict.records:
        # Nothing is proven up to a beginning that is missing: the intact records come after it.
        after = verdict.file < min(path.name for path in (place / FOLDER).glob("audit-*.jsonl"))
        assert verdict.intact == ("after" if after else "before")
        words = "Nothing is proven about those before" if after else "up to there"
        assert words in intact_records(verdict)


@each_case("index", range(FILES))
@each_case("part", ["empty", "first line gone", "first half gone", "last line gone", "cut in a line"])
def test_no_file_can_be_truncated_unnoticed(long_record: Path, tmp_path: Path, index: int, part: str) -> None:
    head = verify(folder(long_record)).head
    place = Path(shutil.copytree(long_record, tmp_path / "copy"))
    files = sorted((place / FOLDER).glob("audit-*.jsonl"))
    file, all_are_kept = files[index], files[0].name == "audit-000001.jsonl"
    whole = file.read_bytes().splitlines(keepends=True)
    rest = {
        "empty": [],
        "first line gone": whole[1:],
        "first half gone": whole[len(whole) // 2 + 1 :],
        "last line gone": whole[:-1],
        "cut in a line": [*whole[:-1], whole[-1][:20]],
    }[part]
    file.write_bytes(b"".join(rest))
    assert not verify(folder(place), contains=head).ok
    at_the_end = index == FILES - 1 and part in ("empty", "last line gone", "cut in a line")
    at_the_end = at_the_end and (all_are_kept or part != "empty")
    assert verify(folder(place)).ok is at_the_end


@each_case("content", [None, b"", b"\n", b'{"seq":1'])
def test_a_folder_without_a_record_does_not_verify(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "audit").mkdir()
    if content is not None:
        (tmp_path / "audit" / "audit-000001.jsonl").write_bytes(content)
    assert not verify(str(tmp_path / "audit")).ok
    assert not verify(str(tmp_path / "audit"), keep=3).ok


def test_files_of_a_version_that_did_not_note_how_many_were_kept_are_explained_by_the_setting(
    tmp_path: Path,
) -> None:
    head, place = ChainHead(), tmp_path / "audit"
    place.mkdir()
    for number in range(1, 5):
        body = marker_body("begin", head.seq + 1, 0, pid=1, schema=1, prev=head.digest.hex())
        line, digest = seal(body, head.digest)
        head = ChainHead(head.seq + 1, digest)
        (place / f"audit-{number:06d}.jsonl").write_bytes(line)
    assert verify(str(place)).ok
    for number in (1, 2):
        (place / f"audit-{number:06d}.jsonl").unlink()
    assert [verify(str(place), keep=keep).ok for keep in (0, 1, 2, 3)] == [False, True, True, False]
