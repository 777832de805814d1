"""Group commit: jobs that share the cost of syncing to disk.

A job is a generator that yields whenever it needs something to be durable before it continues. All jobs of a group run
to their next sync point, one sync serves them all, and so on. If a sync fails for one job, the error is thrown into
it and the others continue. Not aware of what the jobs do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from switchboard_mcp.errors import Failure, SwitchboardError, refused
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.store.directory import TempFile, Transaction

R = TypeVar("R")
# A job yields the files that must be synced before it continues, or None for all names it has published or moved.
SyncPoint: TypeAlias = "Sequence[TempFile] | None"
Job: TypeAlias = Generator[SyncPoint, None, R]


class _Running:
    """A job in progress."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.sync_point: SyncPoint = ()
        self.done = False
        self.outcome: Any = None

    def step(self, path: str, problem: Exception | None = None) -> None:
        """Advance to the next sync point or to the end."""
        try:
            self.sync_point = self.job.throw(problem) if problem else next(self.job)
            return
        except StopIteration as end:
            self.outcome = end.value
        except SwitchboardError as refused:
            self.outcome = refused.failure
        except OSError as trouble:
            self.outcome = file_operations.failure_for(trouble, path)
        except Exception as fault:  # noqa: BLE001 - a bug in one job must not fail the others
            self.outcome = fault
        self.done = True


def run(tx: Transaction, jobs: Sequence[Job[R]]) -> list[R | Failure | Exception]:
    """Run the jobs together; returns the result, failure or unexpected exception of each."""
    running = [_Running(job) for job in jobs]
    for each in running:
        each.step(tx.directory.path)
    while alive := [each for each in running if not each.done]:
        _sync(tx, alive)
    return [each.outcome for each in running]


def _sync(tx: Transaction, alive: list[_Running]) -> None:
    problems: dict[int, Exception] = {}
    waiting = [(id(each), file) for each in alive for file in each.sync_point or ()]
    for (job, _), error in zip(waiting, tx.sync_files([file for _, file in waiting]), strict=True):
        if error is not None:
            problems[job] = error
    if any(each.sync_point is None for each in alive):
        try:
            tx.sync_folders()
        except OSError as error:
            failure = file_operations.failure_for(error, tx.directory.path)
            message = f"{failure.message} The message may have been stored."
            hint = "Fix the problem, then send it again with the same idempotencyKey."
            unsynced = refused("mail_not_stored", message, hint=hint)
            problems |= {id(each): unsynced for each in alive if each.sync_point is None}
    for each in alive:
        each.step(tx.directory.path, problems.get(id(each)))
