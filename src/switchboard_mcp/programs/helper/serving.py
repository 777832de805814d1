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
    ModuleFrame,
    Ready,
    StartRequest,
    Stepped,
)
from switchboard_mcp.programs.helper.interpreter import Interpreter, WorkerLostError

# The gateway ends a helper that does not answer in its time; the client then no longer matters.
REQUEST_TIMEOUT_S = 300
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
            answer.retires = answer.retires or not _is_alive(worker)
            _write(target, frames.encode(answer))
            if answer.retires:  # this process may not start another worker
                return


def _warm(pool: Any, interpreter: Interpreter) -> int:
    """Use everything once, so that it is loaded before no file can be opened."""
    modules = [ModuleFrame("m", ["f"], WARM_STUB)]
    interpreter.check(CheckRequest("import m\nx = await m.f(a=1)\n(", modules))
    interpreter.check(CheckRequest("import m\nx = await m.f(a=1)\n", modules))
    with pool.checkout() as session:
        session.feed_run("1")
        return int(session.worker_pid or 0)


def _is_alive(worker: int) -> bool:
    try:
        os.kill(worker, 0)
    except OSError:
        return False
    return True


def handle(interpreter: Interpreter, body: bytes) -> Answer:
    """Answer one request."""
    request = frames.decode_request(body)
    is_check = isinstance(request, CheckRequest)
    try:
        if isinstance(request, CheckRequest):
            return Answer(interpreter.check(request))
        if isinstance(request, StartRequest):
            return Answer(interpreter.start(request))
        return Answer(interpreter.resume(request))
    except WorkerLostError as problem:
        failed = _worker_lost(str(problem))
    except MemoryError:
        failed = Failed("limit", "The program used too much memory.", limit="memory_mb")
    return Answer(Checked(failure=failed) if is_check else Stepped(failed=failed), retires=True)


def _worker_lost(reason: str) -> Failed:
    if reason == "seconds":
        return Failed("limit", "The program ran too long.", limit=reason)
    if reason == "memory_mb":
        return Failed("limit", "The program used too much memory.", limit=reason)
    return Failed("crash", f"The interpreter ended: {reason}")


def _read(source: int) -> bytes | None:
    """Return the next frame without its header, or None at the end."""
    header = _read_exactly(source, frames.HEADER_BYTES)
    return None if header is None else _read_exactly(source, int.from_bytes(header, "big"))


def _read_exactly(source: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = os.read(source, min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
