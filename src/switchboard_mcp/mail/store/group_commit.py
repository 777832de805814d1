"""Several jobs that share the cost of reaching the disk.

A job is a generator that says at which points it cannot go on before something is durable. All jobs of a round run to
such a point, one sync serves them all, and so on; a job whose part fails is told, and the others go on. Owns the
stepping; does not know what the jobs do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction

R = TypeVar("R")
# A job yields the files that must be on the disk before it goes on; or None, for all names it has given or moved.
SyncPoint: TypeAlias = "Sequence[TempFile] | None"
Job: TypeAlias = Generator[SyncPoint, None, R]


class _Running:
    """A job on its way."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.sync_point: SyncPoint = ()
        self.done = False
        self.outcome: Any = None

    def step(self, path: str, problem: Exception | None = None) -> None:
        """On to the next point where it waits, or to its end."""
        try:
            self.sync_point = self.job.throw(problem) if problem else next(self.job)
            return
        except StopIteration as end:
            self.outcome = end.value
        except SwitchboardError as refused:
            self.outcome = refused.failure
        except OSError as trouble:
            self.outcome = file_operations.failure_for(trouble, path)
        except Exception as fault:  # noqa: BLE001 - a fault in one job is its asker's to hear, not the others'
            self.outcome = fault
        self.done = True


def run(tx: Transaction, jobs: Sequence[Job[R]]) -> list[R | Failure | Exception]:
    """Run the jobs together; what each returned, why it failed, or what it raised that nobody foresaw."""
    running = [_Running(job) for job in jobs]
    for each in running:
        each.step(tx.directory.path)
    while alive := [each for each in running if not each.done]:
        _sync(tx, alive)
    return [each.outcome for each in running]


def _sync(tx: Transaction, alive: list[_Running]) -> None:
    problems: dict[int, Exception] = {}
    waiting = [(id(each), draft) for each in alive for draft in each.sync_point or ()]
    for (job, _), trouble in zip(waiting, tx.sync_files([draft for _, draft in waiting]), strict=True):
        if trouble is not None:
            problems[job] = trouble
    if any(each.sync_point is None for each in alive):
        try:
            tx.sync_folders()
        except OSError as trouble:
            failure = file_operations.failure_for(trouble, tx.directory.path)
            unsure = f"{failure.message} The message may be stored all the same."
            hint = "Mend it, then send it again with the same idempotencyKey."
            lost = refused("mail_not_stored", unsure, hint=hint)
            problems |= {id(each): lost for each in alive if each.sync_point is None}
    for each in alive:
        each.step(tx.directory.path, problems.get(id(each)))
