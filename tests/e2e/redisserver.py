"""A Redis of one's own for a test: on a loopback port, in a folder that goes away, killed and started at will."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
needs_redis = pytest.mark.skipif(
    PROGRAM is None, reason="redis-server is not installed (Debian: apt-get install redis-server)"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RedisServer:
    """Append-only, synced every second, like one that is meant to keep things."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A cluster also listens on the port that is higher by 10,000.
        self.port = next(port for port in iter(free_port, 0) if port < 55_000)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *options: str) -> None:
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [
                PROGRAM,
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", *options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_answer()

    def start_sentinel(self, config: Path) -> None:
        """Start as a Sentinel that monitors nothing."""
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, str(config), "--sentinel", "--port", str(self.port), "--bind", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process is not None
        until = time.monotonic() + PATIENCE_S
        while not self.ask("PING").startswith(("+PONG", "-NOAUTH")):
            assert self._process.poll() is None, "redis-server has ended"
            assert time.monotonic() < until, "redis-server does not answer"
            time.sleep(0.02)

    def ask(self, *words: str) -> str:
        """The first line of an answer; empty where there is none."""
        sent = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(sent.encode())
                return connection.recv(65_536).decode("utf-8", "replace").split("\r\n")[0]
        except OSError:
            return ""

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It is there, and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def calls(self, command: str) -> int:
        """Return how often a command was used since the start."""
        return self._count("commandstats", rf"cmdstat_{command}:calls=(\d+)")

    def errors(self, code: str) -> int:
        """Return how often it has answered with an error since the start."""
        return self._count("errorstats", rf"errorstat_{code}:count=(\d+)")

    def _count(self, section: str, pattern: str) -> int:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(f"INFO {section}\r\n".encode())
            told = connection.recv(65_536).decode()
        found = re.search(pattern, told)
        return int(found[1]) if found else 0

    def keys(self, pattern: str) -> int:
        """Return the number of keys, of any prefix."""
        return int(self.ask("EVAL", f"return #redis.call('KEYS', '*:{pattern}')", "0").removeprefix(":"))
