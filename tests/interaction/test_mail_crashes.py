"""Processes killed at every step and at random instants: every accepted message stays, in exactly one place."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from switchboard_mcp.mail.store.claims import AckRequest
from switchboard_mcp.mail.store.directory import StoreDirectory, Transaction
from switchboard_mcp.mail.store.maintenance import repair, retention

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.messages import Acked, Claimed, Draft, Sent
from switchboard_mcp.mail.store import (
    claims,
    dead_letters,
    dropped_files,
    file_operations,
    sending,
    workspace_state,
)
from switchboard_mcp.mail.store.delivery_rules import load_rules
from switchboard_mcp.mail.store.store import MessageStore
from switchboard_mcp.mail.workflows import engine
from tests.interaction.mailcrash import (
    Fuse,
    History,
    arm,
    check,
    end,
    everything,
    fork,
    kill_after,
    later,
    opened,
    run,
    torn,
)

# Three processes are killed in each round; together with the systematic rounds well over a thousand.
ROUNDS = int(os.environ.get("SWITCHBOARD_CRASH_ROUNDS", "40"))
# Kills of processes with an index: at every third step, or at every one in a long run.
STRIDE = 3 if ROUNDS <= 40 else 1
LEASE_S = 3600.0


def draft(payload: str = "work", key: str | None = None) -> Draft:
    return Draft(action="delegate_task", payload=payload, idempotency_key=key)


def settling(fence: int, outcome: str = "done", result: str | None = None) -> AckRequest:
    return AckRequest(fence=fence, outcome=outcome, summary="", result=result)  # type: ignore[arg-type]


def send(tree: StoreDirectory, history: History, *, key: str | None = None, payload: str = "work") -> None:
    sent = run(tree, lambda tx: sending.send(tx, draft(payload, key), "lead", "coder", []))
    assert isinstance(sent, Sent), sent
    history.tell("accepted", sent.id)


def take(tree: StoreDirectory, lease_s: float = LEASE_S) -> Claimed:
    with tree.transaction() as tx:
        inbox, _ = dropped_files.deliver(tx, "coder", [])
        return claims.claim(tx, "coder", inbox, 1, lease_s, None)[0]


def claim(tree: StoreDirectory, history: History) -> None:
    taken = take(tree)
    history.tell("claimed", taken.message.id, taken.fence)


def ack(outcome: str, result: str | None) -> Callable[[StoreDirectory, History], None]:
    def settle(tree: StoreDirectory, history: History) -> None:
        held = json.loads((Path(tree.workspace) / "held.json").read_text())
        how = settling(held["fence"], outcome, result)
        acked = run(tree, lambda tx: claims.ack(tx, "coder", held["id"], how, []))
        assert isinstance(acked, Acked), acked
        if outcome != "rejected":
            history.tell("acked", acked.id, held["fence"], outcome)
        if acked.result is not None:
            history.tell("accepted", acked.result.id)

    return settle


def visiting(work: Callable[[Transaction], object]) -> Callable[[StoreDirectory, History], None]:
    def visit_tree(tree: StoreDirectory, history: History) -> None:
        with tree.transaction() as tx:
            work(tx)

    return visit_tree


def give_back(tree: StoreDirectory, history: History) -> None:
    future = StoreDirectory(tree.workspace, later(2 * LEASE_S))
    future.writer = tree.writer
    with future.transaction() as tx:
        claims.return_expired(tx, "coder")


def give_up(tree: StoreDirectory, history: History) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "MAX_RETURNS", 0)
        give_back(tree, history)


def requeue(tx: Transaction) -> None:
    (dead,) = (each for each in dead_letters.list_dead_letters(tx, "coder") if each.message)
    dead_letters.requeue(tx, "coder", dead.id)


def prune(tree: StoreDirectory, history: History) -> None:
    with tree.transaction() as tx:
        found = retention.find_prunable(tx, time.time() + LEASE_S)
        for each in found:
            history.tell("to prune", each.entry.stem.id)
        retention.remove_messages(tx, found, retention.Pruned())
        retention.remove_leftovers(tx, time.time() + LEASE_S, retention.Pruned())


def renew(tx: Transaction) -> None:
    held = json.loads((Path(tx.directory.workspace) / "held.json").read_text())
    claims.renew(tx, "coder", held["id"], held["fence"], 2 * LEASE_S)


def count(now: dict[str, object]) -> None:
    now["count"] = int(str(now.get("count", 0))) + 1


OPERATIONS: dict[str, Callable[[StoreDirectory, History], None]] = {
    "send": send,
    "send with a key": lambda tree, history: send(tree, history, key="k"),
    "send an attachment": lambda tree, history: send(tree, history, payload="x" * 1_100_000),
    "deliver": visiting(lambda tx: dropped_files.deliver(tx, "coder", [])),
    "claim": claim,
    "renew": visiting(renew),
    "release": give_back,
    "give up": give_up,
    "requeue": visiting(requeue),
    "prune": prune,
    "ack": ack("done", None),
    "ack with a result": ack("failed", "it broke"),
    "reject": ack("rejected", None),
    "state": visiting(lambda tx: workspace_state.update(tx, count)),
    "repair": visiting(repair.repair),
}


def prepare(workspace: Path, history: History) -> None:
    """A tree in which everything can happen: a message held, waiting, dead, settled and dropped; and garbage."""
    with opened(workspace) as tree:
        with tree.transaction() as tx:
            for name in ("lead", "coder"):
                tx.folder("inbox", name, make=True)
        send(tree, history)
        take(tree)
        give_up(tree, history)
        send(tree, history)
        ended = take(tree)
        run(tree, lambda tx: claims.ack(tx, "coder", ended.message.id, settling(ended.fence), []))
        send(tree, history)
        held = take(tree)
        history.tell("claimed", held.message.id, held.fence)
        (workspace / "held.json").write_text(json.dumps({"id": held.message.id, "fence": held.fence}))
        send(tree, history)
    drop(workspace, "msg_dropped", "lead")
    garbage = workspace / ".switchboard" / "inbox" / "coder" / "msg_garbage.json"
    garbage.write_text("{")
    os.utime(garbage, (1, 1))


def drop(workspace: Path, name: str, sender: str, metadata: Mapping[str, str] = MappingProxyType({})) -> None:
    inbox = workspace / ".switchboard" / "inbox" / "coder"
    content: dict[str, object] = {
        "id": name,
        "action": "status_update",
        "sender": sender,
        "recipient": "coder",
        "payload": "done",
    }
    content["metadata"] = dict(metadata)
    (inbox / f".{name}").write_text(json.dumps(content))
    (inbox / f".{name}").rename(inbox / f"{name}.json")


@pytest.fixture(params=["renameat2", "link"])
def moving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Moves in one step, and in two where the file system has no better."""
    if request.param == "link":
        monkeypatch.setattr(file_operations, "_renameat2", None)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory: for kills, unlike power cuts, the disk does not matter, and a thousand syncs take long."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    ("moving", "stride"),
    [
        ("renameat2", 3),
        pytest.param("renameat2", 1, marks=pytest.mark.soak("crashes")),
        pytest.param("link", 1, marks=pytest.mark.soak("crashes")),
    ],
    indirect=["moving"],
)
def test_killed_before_any_step_an_operation_has_happened_or_has_not(
    name: str, moving: str, stride: int, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    if moving == "renameat2":
        # Messages that were sent long before: only then are they looked for in other places.
        monkeypatch.setattr(dropped_files, "PUBLISHED_WITHIN_S", -1.0)
    (memory / "prepared").mkdir()
    prepare(memory / "prepared", History(memory / "prepared" / "history"))
    step = 0
    while True:
        workspace = memory / "work"
        shutil.copytree(memory / "prepared", workspace)
        history = History(workspace / "history")

        def work(workspace: Path = workspace, history: History = history, step: int = step) -> None:
            tree = StoreDirectory(str(workspace), later(0))
            tree.make()
            arm(Fuse(step))
            OPERATIONS[name](tree, history)

        killed = end(fork(work))
        after_the_crash(workspace, history)
        history.close()
        shutil.rmtree(workspace)
        if not killed:
            break
        step += stride
    assert step > 5, "nothing was interrupted"


def test_killed_before_any_step_a_letter_that_ends_a_phase_ends_it_once(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped_files, "SETTLE_S", 0.0)
    prepared = memory / "prepared"
    prepared.mkdir()
    asyncio.run(begin_hand_off(prepared))
    for step in itertools.count():
        workspace = memory / "work"
        shutil.copytree(prepared, workspace)

        def work(workspace: Path = workspace, step: int = step) -> None:
            tree = StoreDirectory(str(workspace), later(0))
            tree.make()
            arm(Fuse(step))
            with tree.transaction() as tx:
                dropped_files.deliver(tx, "coder", load_rules(str(workspace)))

        killed = end(fork(work))
        asyncio.run(check_hand_off(workspace))
        shutil.rmtree(workspace)
        if not killed:
            break
    assert step > 20, "nothing was interrupted"


async def begin_hand_off(workspace: Path) -> None:
    """A workflow whose first phase a dropped letter ends."""
    async with await MessageStore.open(str(workspace), watch=False) as post:
        for name in ("lead", "coder"):
            await post.register(name)
        run = (await engine.start(post, "lead", "hand-off", agents={"giver": "lead", "taker": "coder"})).run
        for path in run.needs():
            (workspace / path).write_text("all of it")
    drop(workspace, "msg_handed", "lead", {"workflow": run.id, "completes": "prepare"})


async def check_hand_off(workspace: Path) -> None:
    """Whoever comes next delivers the letter, and it has ended the phase once."""
    async with await MessageStore.open(str(workspace), watch=False, rules=load_rules(str(workspace))) as post:
        await post.deliver()
        (run,) = engine.runs(await engine.send_pending_notices(post)).values()
        assert [(step.phase, step.via) for step in run.steps] == [("prepare", "msg_handed to coder")]
        assert [each.message.action for each in await post.peek("coder")] == [
            "status_update",
            "delegate_task",
        ]
        await post.repair()
        assert [each.status for each in await post.receipts("lead", ids=["msg_handed"])] == ["delivered"]
        assert (await post.verify()).sound


def after_the_crash(workspace: Path, history: History) -> None:
    """Another process finds everything in its place, mends what was left, and can go on."""
    assert torn(workspace / ".switchboard", set()) == []
    with opened(workspace) as tree:
        with tree.transaction() as tx:
            dropped_files.deliver(tx, "coder", [])
            repair.repair(tx)
            workspace_state.update(tx, count)
        check(tree, history.lines(), single_claims=False)
        where = everything(tree)
        assert len([key for key in where if key == "msg_dropped"]) == 1, "the dropped message is lost"
        leftovers = [
            p.name for p in (workspace / ".switchboard" / "tmp").iterdir() if tree.writer not in p.name
        ]
        assert leftovers == []
        send(tree, history, key="k")
        with_key = [
            key for key, ((agent, _),) in everything(tree).items() if "_key-" in key and agent == "coder"
        ]
        assert len(with_key) == 1, "the same key made two messages"
    assert json.loads((workspace / ".switchboard" / "state.json").read_text())["count"] in (1, 2)


@pytest.mark.parametrize("name", ["send", "claim", "release"])
def test_killed_before_any_step_an_index_has_what_the_folder_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk: a folder in memory has no exact times, so no index. One tree for all kills, as in a crash loop."""
    monkeypatch.setattr(dropped_files, "MIN_INDEXED", 1)

    history = History(tmp_path / "history")
    with opened(tmp_path) as other:
        if not other.index.exact:
            pytest.skip("this file system does not give every change of a folder its own time")
        with other.transaction() as tx:
            for agent in ("lead", "coder"):
                tx.folder("inbox", agent, make=True)
        step = 0
        while True:
            for _ in range(2):
                send(other, history)
            with other.transaction() as tx:
                dropped_files.scan(tx, "coder")
            held = take(other)
            (tmp_path / "held.json").write_text(json.dumps({"id": held.message.id, "fence": held.fence}))

            def work(step: int = step) -> None:
                tree = StoreDirectory(str(tmp_path), later(0))
                tree.make()
                arm(Fuse(step))
                OPERATIONS[name](tree, history)

            killed = end(fork(work))
            with other.transaction() as tx:
                indexed = [entry.name for entry in dropped_files.scan(tx, "coder").first(10**6)]
                assert indexed == sorted(os.listdir(tx.folder("inbox", "coder")))
            if not killed:
                break
            step += STRIDE
    history.close()
    assert step > 5, "nothing was interrupted"


def test_an_old_fence_is_refused_after_the_message_was_claimed_again(workspace: Path, tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    prepare(workspace, history)
    held = json.loads((workspace / "held.json").read_text())
    with opened(workspace, later(2 * LEASE_S)) as tree:
        with tree.transaction() as tx:
            assert claims.return_expired(tx, "coder") == ([held["id"]], [])
        again = take(tree)
        assert again.message.id == held["id"]
        assert again.fence > held["fence"]
        refused = run(tree, lambda tx: claims.ack(tx, "coder", held["id"], settling(held["fence"]), []))
        assert isinstance(refused, Failure)
        assert refused.code == "mail_lease_lost"
        done = run(tree, lambda tx: claims.ack(tx, "coder", held["id"], settling(again.fence), []))
        assert isinstance(done, Acked)


async def sender(workspace: Path, history: History, name: str) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as post:
        for number in itertools.count():
            sent = await post.send(draft(str(number)), sender=name, recipient="coder")
            history.tell("accepted", sent.id, name, number)


async def receiver(workspace: Path, history: History) -> None:
    async with await MessageStore.open(str(workspace), watch=False) as post:
        while True:
            for taken in await post.claim("coder", limit=3, lease_s=LEASE_S):
                history.tell("claimed", taken.message.id, taken.fence)
                acked = await post.ack(
                    "coder", taken.message.id, fence=taken.fence, result="ok" if taken.fence % 3 else None
                )
                history.tell("acked", taken.message.id, taken.fence, "done")
                if acked.result is not None:
                    history.tell("accepted", acked.result.id)


async def server(workspace: Path, history: History, name: str) -> None:
    """Delivers what it drops itself, watches, and writes the state."""
    async with await MessageStore.open(str(workspace)) as post:
        for number in itertools.count():
            drop(workspace, f"msg_{name}-{number}", name)
            for delivery in await post.deliver("coder"):
                assert delivery.problem is None, delivery
                history.tell("accepted", str(delivery.id))
            await post.update(count)


@pytest.mark.parametrize("rounds", [5, pytest.param(ROUNDS, marks=pytest.mark.soak("crashes"))])
def test_processes_killed_at_random_instants_lose_nothing_and_do_nothing_twice(
    memory: Path, rounds: int
) -> None:
    dice = random.Random(20)
    result: list[str] = []
    killed = 0
    # A tree that has grown large is slow to look at, and the point is to kill. On a busy machine few get far.
    while killed < rounds or (killed < 100 * rounds and not _goes_on(result, rounds)):
        workspace = memory / str(killed)
        workspace.mkdir()
        history = History(workspace / "history")
        at_once = min(20, rounds)
        kill_at_random(workspace, history, dice, at_once)
        result += [line[0] for line in history.lines()]
        history.close()
        shutil.rmtree(workspace)
        killed += at_once
    assert _goes_on(result, rounds), "nothing went on"


def _goes_on(result: list[str], rounds: int) -> bool:
    return min(map(result.count, ("accepted", "claimed", "acked"))) > rounds // 10


def kill_at_random(workspace: Path, history: History, dice: random.Random, rounds: int) -> None:
    """Start a sender, a receiver and a server, kill each at some instant, again and again; then look at everything."""
    with opened(workspace) as tree, tree.transaction() as tx:
        for name in ("lead", "coder"):
            tx.folder("inbox", name, make=True)
    seen: set[str] = set()
    for number in range(rounds):
        name = f"agent-{number}"
        workers = [
            fork(lambda name=name: asyncio.run(sender(workspace, history, name))),  # type: ignore[misc]
            fork(lambda: asyncio.run(receiver(workspace, history))),
            fork(lambda name=name: asyncio.run(server(workspace, history, name))),  # type: ignore[misc]
        ]
        dice.shuffle(workers)
        for child in workers:
            kill_after(child, dice.uniform(0.0, 0.04))
            assert torn(workspace / ".switchboard", seen) == []
        for child in workers:
            assert end(child) == 9
    with opened(workspace) as tree:
        check(tree, history.lines())
        with tree.transaction() as tx:
            dropped_files.deliver(tx, "coder", [])
            repair.repair(tx)
        check(tree, history.lines())


def test_what_failed_for_want_of_room_is_not_there(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(workspace) as tree:
        with tree.transaction() as tx:
            tx.folder("inbox", "coder", make=True)

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("switchboard_mcp.mail.store.file_operations.os.write", full)
            refused = run(tree, lambda tx: sending.send(tx, draft(), "lead", "coder", []))
        assert isinstance(refused, Failure)
        assert refused.code == "mail_not_stored"
        assert "No space is left" in refused.message
        assert everything(tree) == {}
        assert [path.name for path in Path(tree.path, "tmp").iterdir()] == [f"{tree.writer}.lock"]
