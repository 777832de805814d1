"""Files of a workflow: scans artifacts in the workspace and writes the record of a run.

Paths are walked folder by folder without following links, so nothing outside is ever opened. Not aware of which files
are needed. Blocking; call in threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from hashlib import sha256

from switchboard_mcp.errors import SwitchboardError
from switchboard_mcp.mail.path_patterns import artifact_path
from switchboard_mcp.mail.store import file_operations
from switchboard_mcp.mail.workflows.definitions import WorkflowArtifact

REVIEWS = "reviews"
# Hashed within a few seconds; anything larger is not a document.
MAX_BYTES = 1 << 30
_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def scan(workspace: str, paths: Iterable[str]) -> dict[str, WorkflowArtifact | str]:
    """Return the file at each path with its hash, or the reason it is not usable."""
    return {path: _scan_one(workspace, path) for path in dict.fromkeys(paths)}


def _scan_one(workspace: str, path: str) -> WorkflowArtifact | str:
    if artifact_path(path) != path:
        return "it is not inside the workspace"
    *folders, name = path.split("/")
    descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        return _hashed(descriptor, name, path)
    except FileNotFoundError:
        return "there is no such file"
    except OSError as problem:
        at = _find_link(workspace, path)
        return f"'{at}' is a symbolic link" if at else f"it cannot be read: {problem.strerror}"
    finally:
        os.close(descriptor)


def _hashed(folder: int, name: str, path: str) -> WorkflowArtifact | str:
    # Checked before opening: opening a device or a pipe may have side effects.
    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    unfit = _rejection(info)
    if unfit:
        return unfit
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        before = os.fstat(descriptor)
        unfit = _rejection(before)
        if unfit:
            return unfit
        digest, size = sha256(), 0
        while (part := os.read(descriptor, _CHUNK)) and size <= MAX_BYTES:
            digest.update(part)
            size += len(part)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size != after.st_size:
        return "it was modified while being read"
    return WorkflowArtifact(path, digest.hexdigest(), size)


def _rejection(info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(info.st_mode):
        return "it is not a regular file"
    if info.st_nlink != 1:
        return "it is a hard link to a file with other names"
    if info.st_size == 0:
        return "it is empty"
    return f"it is larger than {MAX_BYTES} bytes" if info.st_size > MAX_BYTES else ""


def _find_link(workspace: str, path: str) -> str:
    """Return the first part of a path that is a link, for the error message."""
    parts = path.split("/")
    heads = ("/".join(parts[: count + 1]) for count in range(len(parts)))
    return next((head for head in heads if os.path.islink(os.path.join(workspace, head))), "")


def write_record(mail_folder: str, name: str, data: bytes) -> None:
    """Write the record of a run to the reviews folder durably, replacing an earlier one."""
    try:
        root = file_operations.open_folder(mail_folder)
        try:
            folder = file_operations.open_folder(REVIEWS, root)
        finally:
            os.close(root)
        try:
            temp = f".{name}.{os.urandom(4).hex()}.tmp"
            written = file_operations.create(folder, temp, data)
            try:
                file_operations.sync(written)
            finally:
                os.close(written)
            file_operations.replace(folder, temp, folder, name)
            file_operations.sync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        raise SwitchboardError(
            file_operations.failure_for(problem, os.path.join(mail_folder, REVIEWS))
        ) from None
