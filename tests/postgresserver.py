"""A real PostgreSQL for tests: on a socket in a folder of its own, started once per worker, killed at will."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.patience import PATIENCE_S

_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
# A killed server keeps what it has written; only a power cut would not.
fsync = off
max_connections = 60
shared_buffers = 32MB
"""


def _program(name: str) -> str:
    return shutil.which(name) or max(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), default="")


class PostgresServer:
    """One server with its data; root runs it as another user, because PostgreSQL refuses to run as root."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sb-pg-"))
        self._data = self.folder / "data"
        self._user = None
        if os.geteuid() == 0:
            names = {entry.pw_name: entry for entry in pwd.getpwall()}
            self._user = names.get("postgres") or names["nobody"]
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)

    @staticmethod
    def is_installed() -> bool:
        """Return True if there is a server to start."""
        return bool(_program("initdb") and _program("pg_ctl"))

    def url(self, schema: str) -> str:
        """Return the URL of a schema."""
        return f"postgresql:///postgres?host={self.folder}&user=tester&schema={schema}"

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        # Without the mark of a test: the server is not that test's.
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.folder)}
        with (self.folder / "log").open("a+") as log:
            return subprocess.run(
                command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                check=False,
                user=self._user.pw_uid if self._user else None,
                group=self._user.pw_gid if self._user else None,
                extra_groups=[] if self._user else None,
            )

    def start(self) -> None:
        """Create the data if there are none, start, and wait until the server answers."""
        if not self._data.exists():
            options = ("--auth=trust", "--no-sync", "--username=tester", "--encoding=UTF8", "--locale=C")
            made = self._run(_program("initdb"), *options, "-D", str(self._data))
            assert made.returncode == 0, self.log()
            with (self._data / "postgresql.conf").open("a") as file:
                file.write(_SETTINGS.format(folder=self.folder))
        wait = ("-w", "-t", str(int(PATIENCE_S)), "-l", str(self.folder / "server.log"))
        until = time.monotonic() + PATIENCE_S
        # After a kill its lock file may name a process whose end is not over.
        while self._run(_program("pg_ctl"), "start", "-D", str(self._data), *wait).returncode != 0:
            assert time.monotonic() < until, self.log()
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the whole server, as a crash would, and wait until its processes have ended."""
        try:
            postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        except FileNotFoundError:
            return
        os.kill(postmaster, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while os.path.exists(f"/proc/{postmaster}") and time.monotonic() < until:
            if "\nState:\tZ" in Path(f"/proc/{postmaster}/status").read_text():
                return
            time.sleep(0.01)

    def log(self) -> str:
        """Return what the programs have printed."""
        return "".join(path.read_text() for path in self.folder.glob("*log"))[-4_000:]

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self._run(_program("pg_ctl"), "stop", "-m", "immediate", "-D", str(self._data))
        shutil.rmtree(self.folder, ignore_errors=True)
