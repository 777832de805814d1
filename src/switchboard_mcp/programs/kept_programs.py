"""Programs that were kept under a name: Python files in a folder of the workspace.

The first line of a file may be a comment, which is its description. Nothing here runs or checks them.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256

from msgspec import Struct

from switchboard_mcp.config.models import Workspace
from switchboard_mcp.errors import refused
from switchboard_mcp.suites.fuzzy import nearest
from switchboard_mcp.suites.search import Index, SearchDocument
from switchboard_mcp.system.atomic_write import write_atomically
from switchboard_mcp.system.plain_files import read_plain, require_no_links

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SUFFIX = ".py"
MAX_DESCRIPTION_CHARS = 200
# More are not listed: each file is read to show its description.
MAX_PROGRAMS = 1_000
MODE = 0o644


class KeptProgram(Struct, frozen=True, omit_defaults=True):
    """A kept program. `hash` is that of its file."""

    name: str
    description: str = ""
    code: str = ""
    hash: str = ""


class KeptPrograms:
    """The kept programs of a workspace. Blocks on files, so not for the event loop."""

    def __init__(self, folder: str, max_bytes: int, workspace: str = "") -> None:
        self.folder = folder
        self._workspace = workspace
        self._max_bytes = max_bytes

    def read(self, name: str) -> KeptProgram:
        """Return a program. Raises `program_unknown` if there is none."""
        path = self._path(name)
        try:
            data = self._read(path)
        except FileNotFoundError:
            message = f"There is no program '{name}'."
            raise refused("program_unknown", message, nearest=nearest(name, self.names())) from None
        except OSError as problem:
            message = f"{path} cannot be read: {problem.strerror or problem}."
            raise refused("program_unknown", message) from None
        return _parse(name, data)

    def names(self) -> list[str]:
        """Return the names of all programs, sorted."""
        try:
            entries = os.listdir(self.folder)
        except OSError:
            return []
        names = [entry.removesuffix(SUFFIX) for entry in entries if entry.endswith(SUFFIX)]
        return sorted(name for name in names if _NAME.fullmatch(name))[:MAX_PROGRAMS]

    def all(self) -> list[KeptProgram]:
        """Return all programs that can be read, by name."""
        programs = []
        for name in self.names():
            try:
                programs.append(_parse(name, self._read(self._path(name))))
            except OSError:
                continue
        return programs

    def find(self, query: str, limit: int) -> list[KeptProgram]:
        """Return the programs whose name or description matches best."""
        programs = self.all()
        if not programs:
            return []
        index = Index([SearchDocument(program.name, program.description) for program in programs])
        return [programs[hit.place] for hit in index.search(query, limit)]

    def write(self, name: str, code: str, description: str = "") -> str:
        """Write a program, in place of an earlier one of that name; return its file."""
        path = self._path(name)
        line = " ".join(description.split())[:MAX_DESCRIPTION_CHARS]
        text = code if code.endswith("\n") else f"{code}\n"
        if line and not text.startswith("#"):
            text = f"# {line}\n{text}"
        try:
            self._check_folder()
            os.makedirs(self.folder, exist_ok=True)
            write_atomically(path, text.encode("utf-8", "replace"), MODE)
        except OSError as problem:
            message = f"{path} cannot be written: {problem.strerror or problem}."
            raise refused("program_unknown", message) from None
        return path

    def remove(self, name: str) -> None:
        """Remove a program. Raises `program_unknown` if there is none."""
        self.read(name)
        os.remove(self._path(name))

    def _read(self, path: str) -> bytes:
        """Return the bytes of a file, never of another that a link in the workspace names. Raises `OSError`."""
        self._check_folder()
        return read_plain(path, self._max_bytes + MAX_DESCRIPTION_CHARS * 4 + 1)

    def _check_folder(self) -> None:
        """Raise `OSError` if the folder leads out of the workspace."""
        if self._workspace:
            require_no_links(self.folder, self._workspace)

    def _path(self, name: str) -> str:
        if not _NAME.fullmatch(name):
            message = f"{name[:64]!r} is not a valid program name. Use lower-case letters, digits, _ and -, at most 64."
            raise refused("program_unknown", message)
        return os.path.join(self.folder, name + SUFFIX)


def kept_programs_of(workspace: Workspace) -> KeptPrograms:
    """Return the kept programs of a workspace."""
    settings = workspace.config.programs
    folder = os.path.join(workspace.folder, settings.folder)
    return KeptPrograms(folder, settings.limits.code_kb * 1024, workspace.folder)


def program_hash(code: bytes) -> str:
    """Return the checksum of a program's file, as the lock has it."""
    return f"sha256:{sha256(code).hexdigest()}"


def _parse(name: str, data: bytes) -> KeptProgram:
    code = data.decode("utf-8", "replace")
    first = code.split("\n", 1)[0]
    description = first.lstrip("#! ").strip()[:MAX_DESCRIPTION_CHARS] if first.startswith("#") else ""
    return KeptProgram(name, description, code, program_hash(data))
