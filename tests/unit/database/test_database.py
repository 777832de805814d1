"""What a database promises, on both engines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from switchboard_mcp.database import sqlite
from switchboard_mcp.database.database import Database
from switchboard_mcp.database.file_lock import FileLock
from switchboard_mcp.database.machine_clocks import machine_clocks
from switchboard_mcp.database.table_versions import Part
from switchboard_mcp.database.transactions import Connection, StorageError, Transaction
from switchboard_mcp.errors import SwitchboardError, refused
from tests import kills
from tests.databases import Targets
from tests.patience import PATIENCE_S
from tests.postgresserver import PostgresServer


def _create(connection: Connection) -> None:
    connection.define("CREATE TABLE note (number INTEGER PRIMARY KEY, text TEXT NOT NULL, data BLOB)")


NOTES = Part("notes", (_create,))


def add(text: str) -> Callable[[Transaction], int]:
    """Return a job that adds a note with the next number."""

    def work(tx: Transaction) -> int:
        row = tx.row("SELECT max(number) FROM note")
        number = (row[0] if row and row[0] else 0) + 1
        tx.run("INSERT INTO note (number, text, data) VALUES (?, ?, ?)", number, text, text.encode())
        tx.topics.add(f"note {text}")
        return number

    return work


def texts(tx: Transaction) -> list[str]:
    return [text for (text,) in tx.rows("SELECT text FROM note ORDER BY number")]


@pytest.fixture
async def database(database_target: str) -> AsyncIterator[Database]:
    async with await Database.open(database_target, [NOTES]) as opened:
        yield opened


async def test_concurrent_jobs_are_numbered_in_the_order_of_their_commits(
    database: Database, database_target: str
) -> None:
    async with await Database.open(database_target, [NOTES]) as other:
        numbers = await asyncio.gather(
            *((database, other)[item % 2].write(add(str(item))) for item in range(200))
        )
    assert sorted(numbers) == list(range(1, 201))
    assert numbers[::2] == sorted(numbers[::2])
    assert len(await database.read(texts)) == 200


async def test_a_refusal_ends_its_own_job_alone_and_undoes_what_it_changed(database: Database) -> None:
    def refuse_before(_: Transaction) -> None:
        raise refused("mail_quota", "Full.")

    def refuse_after(tx: Transaction) -> None:
        tx.run("INSERT INTO note (number, text) VALUES (1000, 'half')")
        raise refused("mail_quota", "Full.")

    def fail(tx: Transaction) -> None:
        tx.run("INSERT INTO note (number, text) VALUES (1001, 'half')")
        raise KeyError("a fault")

    def misspell(tx: Transaction) -> None:
        tx.rows("SELECT nothing FROM nowhere")

    jobs = [add("a"), refuse_before, add("b"), refuse_after, add("c"), fail, add("d"), misspell, add("e")]
    answers = await asyncio.gather(
        *(database.write(job) for job in jobs),
        return_exceptions=True,
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [int, SwitchboardError, int, SwitchboardError, int, KeyError, int, StorageError, int]
    assert await database.read(texts) == ["a", "b", "c", "d", "e"]


async def test_work_for_the_end_of_a_group_is_committed_with_it(database: Database) -> None:
    def work(tx: Transaction) -> None:
        tx.at_end(lambda: tx.run("INSERT INTO note (number, text) VALUES (7, 'end')"))

    await database.write(work)
    assert await database.read(texts) == ["end"]


async def test_listeners_hear_of_their_topics_from_this_and_from_other_connections(
    database: Database, database_target: str
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    stop = database.listen(heard.put_nowait, ["note mine"])
    async with await Database.open(database_target, [NOTES]) as other, asyncio.timeout(PATIENCE_S):
        await database.write(add("mine"))
        assert await heard.get() in ("note mine", "")
        while not heard.empty():
            heard.get_nowait()
        await other.write(add("mine"))
        assert await heard.get() in ("note mine", "")
    stop()


async def test_a_commit_that_woke_nobody_is_found_by_the_look_behind(
    database: Database, database_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()
    database.listen(lambda _: heard.set(), ["note never named"])
    async with await Database.open(database_target, [NOTES]) as other, asyncio.timeout(PATIENCE_S):
        heard.clear()
        while not heard.is_set():  # The first look only learns the state.
            await other.write(add("silent"))
            try:
                await asyncio.wait_for(heard.wait(), 0.2)
            except TimeoutError:
                pass


async def test_a_newer_layout_is_refused_and_newer_tables_are_not(
    database: Database, database_target: str
) -> None:
    def extend(connection: Connection) -> None:
        connection.define("ALTER TABLE note ADD COLUMN colour TEXT")

    async with await Database.open(database_target, [Part("notes", (_create, extend))]) as newer:
        await newer.write(add("new"))
    await database.write(add("old"))
    assert await database.read(texts) == ["new", "old"]

    async with await Database.open(database_target, [Part("notes", (_create, extend, extend_none), major=2)]):
        pass
    with pytest.raises(StorageError, match="newer Switchboard"):
        await database.write(add("too old"))
    with pytest.raises(StorageError, match="newer Switchboard"):
        await Database.open(database_target, [NOTES])
    assert await database.read(texts) == ["new", "old"]


def extend_none(_: Connection) -> None:
    """Change nothing."""


async def test_a_step_that_fails_leaves_the_tables_as_they_were(
    database: Database, database_target: str
) -> None:
    def half(connection: Connection) -> None:
        connection.define("ALTER TABLE note ADD COLUMN colour TEXT")
        connection.define("ALTER TABLE nothing ADD COLUMN colour TEXT")

    with pytest.raises(StorageError):
        await Database.open(database_target, [Part("notes", (_create, half))])
    await database.write(add("still"))
    assert await database.read(texts) == ["still"]


async def test_the_serving_path_imports_no_engine() -> None:
    code = "import sys, switchboard_mcp.database.database; print({'sqlite3', 'psycopg'} & set(sys.modules))"
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert (await run.communicate())[0] == b"set()\n"


async def test_a_connection_that_the_server_ends_is_replaced_and_the_job_done_again(
    postgres_server: PostgresServer,
) -> None:
    async with await Database.open(postgres_server.url("ended"), [NOTES]) as notes:
        await notes.write(add("before"))
        await notes.read(texts)
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'switchboard %'"
        ended = 0

        def end_first(tx: Transaction) -> None:
            nonlocal ended
            if not ended:
                ended += 1
                with contextlib.suppress(StorageError):
                    tx.rows(end)  # Ends this connection too.
            add("after")(tx)

        await notes.write(end_first)
        assert await notes.read(texts) == ["before", "after"]
        assert ended == 1


# SQLite alone


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Database]:
    async with await Database.open(str(tmp_path / "notes.db"), [NOTES]) as opened:
        yield opened


def modes_of(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}


async def test_files_are_for_their_owner_alone(notes: Database, tmp_path: Path) -> None:
    await notes.write(add("secret"))
    modes = modes_of(tmp_path)
    assert set(modes) >= {"notes.db", "notes.db-wal", "notes.db-shm", "notes.db.lock"}
    assert set(modes.values()) == {0o600}


async def test_a_removed_or_replaced_database_is_refused_and_can_still_be_copied(
    notes: Database, tmp_path: Path
) -> None:
    await notes.write(add("kept"))
    (tmp_path / "notes.db").unlink()
    with pytest.raises(StorageError, match="removed or replaced"):
        await notes.write(add("lost"))
    (tmp_path / "notes.db").write_bytes(b"")
    with pytest.raises(StorageError, match="removed or replaced"):
        await notes.write(add("lost"))
    assert isinstance(notes.engine, sqlite.SqliteEngine)
    notes.engine.save_to(str(tmp_path / "copy.db"))
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("SELECT text FROM note").fetchall() == [("kept",)]
    copy.close()


async def test_a_stopped_writer_is_named_and_readers_go_on(tmp_path: Path) -> None:
    path = str(tmp_path / "notes.db")
    async with await Database.open(path, [NOTES], wait_s=0.2) as notes:
        await notes.write(add("before"))
        holder = FileLock(f"{path}.lock")
        holder.acquire()
        with pytest.raises(StorageError) as refusal:
            await notes.write(add("never"))
        assert f"process {os.getpid()}" in refusal.value.text
        assert await notes.read(texts) == ["before"]
        holder.close()
    async with await Database.open(path, [NOTES]) as notes:
        # The job whose caller gave up was not run.
        assert await notes.read(texts) == ["before"]


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(notes: Database) -> None:
    await notes.write(add("first"))
    limit = await notes.write(lambda tx: tx.rows("PRAGMA page_count")[0][0])
    await notes.write(lambda tx: tx.rows(f"PRAGMA max_page_count={limit}"))
    with pytest.raises(StorageError, match="disk is full"):
        await notes.write(add("large" * 10_000))
    await notes.write(lambda tx: tx.rows("PRAGMA max_page_count=1000000"))
    await notes.write(add("second"))
    assert await notes.read(texts) == ["first", "second"]


async def test_a_read_only_database_can_be_read_and_says_that_it_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    async with await Database.open(str(path), [NOTES]) as notes:
        await notes.write(add("old"))
    engine = sqlite.SqliteEngine(str(path), [NOTES], machine_clocks())
    engine.read_only = True
    assert texts(engine.reader()) == ["old"]
    engine.end_read()
    with pytest.raises(StorageError, match="cannot be written"):
        engine.begin(durable=True)
    engine.close_reader()


async def test_damaged_pages_are_reported_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    async with await Database.open(str(path), [NOTES]) as notes:
        for item in range(50):
            await notes.write(add(f"{item} " * 500))
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 9] = os.urandom(4096 * 6)
    path.write_bytes(content)
    async with await Database.open(str(path), [NOTES]) as notes:
        assert isinstance(notes.engine, sqlite.SqliteEngine)
        assert notes.engine.damage()
        with pytest.raises(StorageError, match="damaged") as refusal:
            await notes.read(lambda tx: tx.rows("SELECT text FROM note"))
        assert "salvage" in refusal.value.hint
    path.write_bytes(b"\0" * 8192)
    with pytest.raises(StorageError, match="damaged"):
        await Database.open(str(path), [NOTES])


def test_network_file_systems_are_known_by_their_mount(tmp_path: Path) -> None:
    info = os.stat(tmp_path)
    number = f"{os.major(info.st_dev)}:{os.minor(info.st_dev)}"
    mounts = tmp_path / "mounts"
    for kind in ("nfs4", "cifs", "9p", "fuse.sshfs", "virtiofs"):
        mounts.write_text(f"1 2 {number} / / rw - {kind} host rw\n")
        matches = sqlite.file_system_of(str(tmp_path), str(mounts))
        assert matches.startswith(sqlite.NETWORK_FILE_SYSTEMS), kind
    assert not sqlite.file_system_of(str(tmp_path)).startswith(sqlite.NETWORK_FILE_SYSTEMS)


async def test_an_upgrade_keeps_a_copy_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    async with await Database.open(str(path), [NOTES]) as notes:
        await notes.write(add("old"))
    async with await Database.open(str(path), [Part("notes", (_create, extend_none))]):
        pass
    (copy,) = [name for name in modes_of(tmp_path) if name.startswith("notes.db.before.")]
    connection = sqlite3.connect(tmp_path / copy)
    assert connection.execute("SELECT text FROM note").fetchall() == [("old",)]
    connection.close()


async def kill_scenario(target: str, folder: str, report: Callable[[object], None]) -> None:
    """Add two notes; run by `tests.kills`."""
    async with await Database.open(target, [NOTES]) as notes:
        for item in range(2):
            report(await notes.write(add(str(item))))


def test_a_kill_at_any_step_of_a_commit_loses_nothing_that_was_accepted(
    targets: Targets, tmp_path: Path
) -> None:
    attempts = 0
    for attempt in kills.at_every_step(
        "tests.unit.database.test_database:kill_scenario", targets, tmp_path, stride=4
    ):
        attempts += 1

        async def look(target: str) -> tuple[list[str], int]:
            async with await Database.open(target, [NOTES]) as notes:
                return await notes.read(texts), await notes.write(add("after"))

        stored, after = asyncio.run(look(attempt.target))
        assert stored == [str(item) for item in range(len(stored))], attempt
        assert len(attempt.reports) <= len(stored) <= len(attempt.reports) + 1, attempt
        assert after == len(stored) + 1, attempt
    assert attempts > 6
