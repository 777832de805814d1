"""Children and pipes on Windows: job objects in place of keepers, and pipes that are looked at now and then.

Everything that Switchboard starts belongs to a job that the kernel ends when Switchboard dies, however abruptly; each
child has a job of its own within it, which ends the child with all that it has started. Windows does not tell when a
pipe can be read, so that the loop looks.

Written by the documentation of Windows and checked against its types. It has not been run: the tests are Linux only.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import wintypes
from threading import Thread
from typing import Any, TypeVarTuple, Unpack

from switchboard_mcp.errors import refused
from switchboard_mcp.transport.process.launcher import ChildProcess, Launcher, SpawnError

assert sys.platform == "win32"

import msvcrt  # noqa: E402 - there is none elsewhere

Ts = TypeVarTuple("Ts")

LIMIT_KILL_ON_JOB_CLOSE = 0x2000
EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
ENDED = 1  # the exit code of who was ended
# How often pipes are looked at: at first, and once nothing has come for a while.
LOOK_S, IDLE_LOOK_S, IDLE_AFTER = 0.002, 0.02, 500
# Batch files are run by cmd.exe, whatever the caller does, and to that these mean something.
BATCH, CMD_MEANS = (".bat", ".cmd"), frozenset('"%&|<>^!\r\n')


class _Basic(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _Extended(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _Basic),
        ("IoInfo", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


def _kernel32() -> ctypes.WinDLL:
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    handle, dword, flag, pointer = wintypes.HANDLE, wintypes.DWORD, wintypes.BOOL, ctypes.c_void_p
    for name, result, arguments in (
        ("CreateJobObjectW", handle, (pointer, wintypes.LPCWSTR)),
        ("SetInformationJobObject", flag, (handle, ctypes.c_int, pointer, dword)),
        ("AssignProcessToJobObject", flag, (handle, handle)),
        ("TerminateJobObject", flag, (handle, wintypes.UINT)),
        ("CloseHandle", flag, (handle,)),
        ("GetCurrentProcess", handle, ()),
        ("PeekNamedPipe", flag, (handle, pointer, dword, pointer, pointer, pointer)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Job:
    """A set of processes that ends when its last handle is closed. Who is in it, its children are in too."""

    def __init__(self, api: ctypes.WinDLL) -> None:
        self._api = api
        self._handle = api.CreateJobObjectW(None, None)
        limits = _Extended()
        limits.BasicLimitInformation.LimitFlags = LIMIT_KILL_ON_JOB_CLOSE
        size = ctypes.sizeof(limits)
        if not self._handle or not api.SetInformationJobObject(
            self._handle, EXTENDED_LIMITS, ctypes.byref(limits), size
        ):
            raise ctypes.WinError(ctypes.get_last_error())

    def add(self, process: int) -> None:
        """Take a process in, by its handle."""
        if not self._api.AssignProcessToJobObject(self._handle, process):
            raise ctypes.WinError(ctypes.get_last_error())

    def end(self) -> None:
        """End everybody in it."""
        if self._handle:
            self._api.TerminateJobObject(self._handle, ENDED)

    def close(self) -> None:
        """Let go of it, which ends whoever is left."""
        if self._handle:
            self._api.CloseHandle(self._handle)
            self._handle = None


class WindowsProcess(ChildProcess):
    """A running child: our ends of its pipes, and its job."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        program: subprocess.Popen[bytes],
        job: Job,
        pipes: tuple[int, int, int],
    ) -> None:
        self.pid = program.pid
        self.stdin, self.stdout, self.stderr = pipes
        self.started = loop.create_future()
        self.started.set_result(None)
        self.exited = loop.create_future()
        self._loop = loop
        self._job = job
        Thread(target=self._wait, args=(program,), daemon=True).start()

    def _wait(self, program: subprocess.Popen[bytes]) -> None:
        code = program.wait()
        self._job.close()  # whoever outlives its parent is ended with it
        try:
            self._loop.call_soon_threadsafe(self._ended, code << 8)
        except RuntimeError:
            pass  # the loop is over, and with it everybody who would want to know

    def _ended(self, status: int) -> None:
        if not self.exited.done():
            self.exited.set_result(status)

    def end(self) -> None:
        """End the child and all that it has started."""
        self._job.end()


class WindowsLauncher(Launcher):
    """Starts children without a process between."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._api = _kernel32()
        # Never closed: that is what our own end does.
        self._everybody = Job(self._api)
        self._everybody.add(self._api.GetCurrentProcess())

    async def spawn(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ChildProcess:
        """Start a child; raises SpawnError where it cannot be."""
        return self._start_child(argv, env, cwd)

    def _start_child(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ChildProcess:
        if not os.path.isdir(cwd):
            raise SpawnError(errno.ENOENT, "chdir")
        program = shutil.which(argv[0], path=env.get("PATH") or env.get("Path"))
        if program is None:
            raise SpawnError(errno.ENOENT, "exec")
        if program.lower().endswith(BATCH) and any(CMD_MEANS & set(word) for word in argv[1:]):
            raise SpawnError(errno.EINVAL, "exec")
        pipes = [os.pipe() for _ in range(3)]
        theirs, ours = (
            (pipes[0][0], pipes[1][1], pipes[2][1]),
            (pipes[0][1], pipes[1][0], pipes[2][0]),
        )
        job = Job(self._api)
        try:
            child = subprocess.Popen(
                [program, *argv[1:]],
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                cwd=cwd,
                env=dict(env),
                creationflags=subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP,
            )
            job.add(int(child._handle))  # type: ignore[attr-defined]
        except OSError as problem:
            for fd in ours:
                os.close(fd)
            job.close()
            raise SpawnError(problem.errno or errno.EINVAL, "exec") from None
        finally:
            for fd in theirs:
                os.close(fd)
        return WindowsProcess(self._loop, child, job, ours)


class PipeLoop(asyncio.SelectorEventLoop):
    """A loop that knows pipes, by looking at them. Who names a number means a pipe: its sockets it knows itself."""

    def __init__(self) -> None:
        if not hasattr(os, "set_blocking"):  # it came with 3.12 there
            raise refused(
                "config_invalid", "On Windows Switchboard needs Python 3.12 or newer.", hint="Install it."
            )
        super().__init__()
        self._api = _kernel32()
        self._sources: dict[int, Callable[[], object]] = {}
        self._sinks: dict[int, Callable[[], object]] = {}
        self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None

    def add_reader(self, fd: Any, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call back while there is something to read."""
        self._sources[fd] = lambda: callback(*args)
        self._look_soon()

    def remove_reader(self, fd: Any) -> bool:
        """Do so no more."""
        return self._sources.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call back now and then: a pipe takes what it has room for."""
        self._sinks[fd] = lambda: callback(*args)
        self._look_soon()

    def remove_writer(self, fd: Any) -> bool:
        """Do so no more."""
        return self._sinks.pop(fd, None) is not None

    def add_signal_handler(self, sig: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """There is only the plain way; the loop wakes often enough to notice."""
        signal.signal(sig, lambda _number, _frame: self.call_soon_threadsafe(callback, *args))

    def _look_soon(self) -> None:
        self._quiet = 0
        if self._timer is None:
            self._timer = self.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        ready = [callback for fd, callback in self._sources.items() if self._has_something(fd)]
        ready += self._sinks.values()
        self._quiet = 0 if ready else self._quiet + 1
        for callback in ready:
            callback()
        if (self._sources or self._sinks) and self._timer is None:
            self._timer = self.call_later(LOOK_S if self._quiet < IDLE_AFTER else IDLE_LOOK_S, self._look)

    def _has_something(self, fd: int) -> bool:
        """Also its end is something, and so is whatever is no pipe."""
        waiting = wintypes.DWORD(0)
        handle = msvcrt.get_osfhandle(fd)
        known = self._api.PeekNamedPipe(handle, None, 0, None, ctypes.byref(waiting), None)
        return not known or waiting.value > 0
