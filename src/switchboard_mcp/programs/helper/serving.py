"""Serves requests of the gateway in the helper process: confines it, then reads, answers, and reads again."""

from __future__ import annotations

import os
from typing import Any

import pydantic_monty as monty
from pydantic_monty._binary import find_monty_binary

from switchboard_mcp.programs.engine import Failed
from switchboard_mcp.programs.helper import frames, lockdown
from switchboard_mcp.programs.helper.frames import (
    Answer,
    Checked,
    CheckRequest,
    Dumped,
    DumpRequest,
    ModuleFrame,
    Ready,
    StartRequest,
    Stepped,
)
from switchboard_mcp.programs.helper.interpreter import Interpreter, WorkerLostError

# The gateway ends a helper that does not answer in its time; the client then no longer matters.
REQUEST_TIMEOUT_S = 300
READ_BYTES = 64 * 1024
WARM_STUB = "async def f(*, a: str) -> dict[str, int]: ...\n"


def serve(source: int, target: int, memory_mb: int) -> None:
    """Confine this process and answer requests until the source ends or the worker dies."""
    command = lockdown.worker_command(find_monty_binary(), memory_mb)
    held = lockdown.enter_first(memory_mb)
    pool = monty.Monty(
        binary_path=command, min_processes=1, max_processes=1, request_timeout=REQUEST_TIMEOUT_S
    )
    with pool:
        interpreter = Interpreter(pool)
        worker = _warm(pool, interpreter)
        held += lockdown.enter_last(worker)
        _write(target, frames.encode(Answer(Ready(held, worker))))
        while (body := _read(source)) is not None:
            answer = handle(interpreter, body)
            # A worker that answered lives; one that is dead fails every operation.
            answer.retires = answer.retires or (_has_failed(answer) and not _is_alive(worker))
            _write(target, frames.encode(answer))
            if answer.retires:  # this process may not start another worker
                return
            interpreter.work_after_answer()


def _warm(pool: Any, interpreter: Interpreter) -> int:
    """Use everything once, so that it is loaded before no file can be opened."""
    modules = [ModuleFrame("m", ["f"], WARM_STUB)]
    interpreter.check(CheckRequest("import m\nx = await m.f(a=1)\n(", modules))
    interpreter.check(CheckRequest("import m\nx = await m.f(a=1)\n", modules))
    with pool.checkout() as session:
        session.feed_run("1")
        return int(session.worker_pid or 0)


def _has_failed(answer: Answer) -> bool:
    return not isinstance(answer.body, Stepped) or answer.body.failed is not None


def _is_alive(worker: int) -> bool:
    try:
        os.kill(worker, 0)
    except OSError:
        return False
    return True


def handle(interpreter: Interpreter, body: bytes) -> Answer:
    """Answer one request."""
    request = frames.decode_request(body)
    try:
        if isinstance(request, CheckRequest):
            return Answer(interpreter.check(request))
        if isinstance(request, StartRequest):
            return Answer(interpreter.start(request))
        if isinstance(request, DumpRequest):
            return Answer(interpreter.dump())
        return Answer(interpreter.resume(request))
    except WorkerLostError as problem:
        failed = _worker_lost(str(problem))
    except MemoryError:
        failed = Failed("limit", "The program used too much memory.", limit="memory_mb")
    if isinstance(request, CheckRequest):
        return Answer(Checked(failure=failed), retires=True)
    if isinstance(request, DumpRequest):
        return Answer(Dumped(failed=failed), retires=True)
    return Answer(Stepped(failed=failed), retires=True)


def _worker_lost(reason: str) -> Failed:
    if reason == "seconds":
        return Failed("limit", "The program ran too long.", limit=reason)
    if reason == "memory_mb":
        return Failed("limit", "The program used too much memory.", limit=reason)
    return Failed("crash", f"The interpreter ended: {reason}")


def _read(source: int) -> bytes | None:
    """Return the next frame without its header, or None at the end."""
    data = os.read(source, READ_BYTES)  # the gateway sends a request after the answer to the last one
    header = frames.HEADER_BYTES
    if header <= len(data) == header + int.from_bytes(data[:header], "big"):
        return data[header:]
    whole = bytearray(data)
    while data and (len(whole) < header or len(whole) < header + int.from_bytes(whole[:header], "big")):
        data = os.read(source, READ_BYTES)
        whole += data
    return bytes(whole[header:]) if data else None


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
