"""The power fails while agents send: a file system of its own is shut down in the middle, without a last sync.

Needs root and loop devices; where a machine has none, this says so and is skipped.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from switchboard_mcp.mail.store.clocks import system_clocks
from switchboard_mcp.mail.store.directory import StoreDirectory
from switchboard_mcp.mail.store.maintenance import repair

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.mail.store import dropped_files
from switchboard_mcp.mail.store.store import MessageStore
from tests.interaction.mailcrash import History, check, fork

# _IOR('X', 125, __u32), and "do not even flush the journal".
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
ROUNDS = int(os.environ.get("SWITCHBOARD_POWER_CUTS", "5"))
IMAGE_BYTES = 64 * 1_048_576


class Disk:
    """An ext4 file system in a file."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self.image, self.folder], check=True, capture_output=True)

    def cut(self) -> None:
        """From now on nothing reaches the disk."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        subprocess.run(["umount", self.folder], check=True, capture_output=True)


@pytest.fixture
def disk() -> Iterator[Disk]:
    programs = [shutil.which(name) for name in ("mkfs.ext4", "mount", "umount")]
    if sys.platform != "linux" or os.geteuid() != 0 or not all(programs):
        pytest.skip("a power cut needs root, mount and mkfs.ext4")
    # Not below pytest's own folder: another run would tidy it up, and with it what is mounted there.
    place = Path(tempfile.mkdtemp(prefix="switchboard-disk-"))
    made = Disk(place / "disk.img", place / "disk")
    made.folder.mkdir()
    with made.image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", made.image], check=True, capture_output=True)
    try:
        try:
            made.mount()
        except subprocess.CalledProcessError as problem:
            pytest.skip(f"no loop device can be mounted here: {problem.stderr.decode().strip()}")
        yield made
        made.unmount()
    finally:
        subprocess.run(["umount", "--lazy", made.folder], check=False, capture_output=True)
        shutil.rmtree(place)


class Witness:
    """Writes down what was answered while the disk was there.

    In the moment of the ioctl above the kernel reports some syncs as done that are not, which it cannot when the power
    fails. A second sync, of something else, fails then.
    """

    def __init__(self, folder: Path, history: History) -> None:
        self._folder = os.open(folder, os.O_RDONLY)
        self._history = history

    def tell(self, kind: str, message_id: str, *more: object) -> None:
        os.fsync(self._folder)
        self._history.tell(kind, message_id, *more)


async def agents(folder: Path, witness: Witness, round_number: int) -> None:
    """Eight that send, and one that claims and settles, until the power fails."""
    async with await MessageStore.open(str(folder), watch=False) as post:
        await post.register("coder")

        async def send(name: str) -> None:
            for number in range(10_000):
                draft = Draft(action="status_update", payload=f"{number} " + "x" * 700)
                sent = await post.send(draft, sender=name, recipient="coder")
                witness.tell("accepted", sent.id, name, number)

        async def work() -> None:
            while True:
                for taken in await post.claim("coder", limit=4):
                    acked = await post.ack("coder", taken.message.id, fence=taken.fence, result="ok")
                    witness.tell("acked", taken.message.id, taken.fence, "done")
                    if acked.result is not None:
                        witness.tell("accepted", acked.result.id)
                await asyncio.sleep(0)

        await asyncio.gather(*(send(f"agent-{round_number}-{n}") for n in range(8)), work())


def test_nothing_that_was_accepted_is_lost_when_the_power_fails(disk: Disk, tmp_path: Path) -> None:
    dice = random.Random(7)
    history = History(tmp_path / "history")
    for number in range(ROUNDS):
        before = len(history.lines())
        # The answers of a dead file system are errors, which end the worker; they are not what is looked at.
        child = fork(
            lambda number=number: asyncio.run(agents(disk.folder, Witness(disk.folder, history), number))  # type: ignore[misc]
        )
        until = time.monotonic() + 30
        while len(history.lines()) < before + 60 and time.monotonic() < until:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the worker ended by itself"
        time.sleep(dice.uniform(0.0, 0.2))  # when the power fails is nobody's choice
        disk.cut()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        disk.unmount()
        disk.mount()
        tree = StoreDirectory(str(disk.folder), system_clocks())
        tree.make()
        check(tree, history.lines(), single_claims=False)
        with tree.transaction() as tx:
            dropped_files.deliver(tx, "coder", [])
            repair.repair(tx)
        check(tree, history.lines(), single_claims=False)
        tree.close()
    print(f"{ROUNDS} power cuts, {len(history.lines())} answers kept")
