"""The forms in which a server may read one text: as a path, decoded, normalized, and with links resolved.

A rule that denies must hold for every form of a path; a rule that allows, or one about what is inside a folder, for all
of them. Pure: `resolve` looks at the disk.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

# Returns the target of the symbolic links in an absolute path.
Resolve = Callable[[str], str]

# Longer than any path, so that a longer text cannot be one.
MAX_PATH_CHARS = 4_096
# Escapes within escapes: `%252e` is `%2e` is `.`.
MAX_DECODINGS = 3


def path_forms(text: str, folder: str, home: str, resolve: Resolve) -> list[str]:
    """Return the absolute paths that a text may stand for, without `.` and `..`, relative to `folder`.

    >>> path_forms("%2e%2e/b", "/w/a", "/h", lambda path: path)
    ['/w/a/%2e%2e/b', '/w/b']
    """
    found: dict[str, None] = {}
    for spelling in _decoded(text):
        for written in _local_forms(spelling, home):
            path, joined = _absolute(written, folder), posixpath.join(folder, written)
            found[path] = None
            found[_absolute(resolve(path), folder)] = None
            if joined != path:  # `link/../x` is beside the target of the link
                found[_absolute(resolve(joined), folder)] = None
    return list(found)


def text_forms(text: str) -> list[str]:
    """Return a text as it is and with its escapes decoded."""
    return list(_decoded(text))


def host_of(text: str) -> str:
    """Return the host that a URL leads to, in lower case; empty if the text has none, or more than one reading."""
    spelled = text.strip()
    if any(character.isspace() or character in "\\\x00" for character in spelled):
        return ""
    try:
        parts = urlsplit(spelled if "://" in spelled else f"//{spelled}")
        host = (parts.hostname or "").rstrip(".").casefold()
    except ValueError:
        return ""
    if not host or "%" in host or "@" in host:
        return ""
    return host if host.isascii() else _ascii_host(host)


def is_inside(path: str, folder: str) -> bool:
    """Return True if an absolute path is the folder or below it, ignoring case.

    >>> is_inside("/a/bc", "/a/b"), is_inside("/a/b/c", "/a/b")
    (False, True)
    """
    path, folder = path.casefold(), folder.casefold().rstrip("/")
    return path == (folder or "/") or path.startswith(f"{folder}/")


def _decoded(text: str) -> dict[str, None]:
    found = {text: None}
    for _ in range(MAX_DECODINGS):
        text = unquote(text, errors="replace")
        found[text] = None
    return found


def _local_forms(text: str, home: str) -> list[str]:
    """Return the readings of a text as a path: with `file:`, `~` and backslashes."""
    readings = [text.strip("\x00 \t\r\n")]
    if readings[0][:5].casefold() == "file:":
        readings.append("/" + readings[0][5:].lstrip("/").removeprefix("localhost/"))
    if "\\" in text:
        readings.append(readings[-1].replace("\\", "/"))
    if readings[-1][:1] == "~":
        user, slash, rest = readings[-1].partition("/")
        # The home of another user is not known here; it is outside of every folder of this one.
        readings.append(home + slash + rest if user == "~" else f"/home/{user[1:]}{slash}{rest}")
    # Some programs end a text at the first NUL, others drop it.
    return [
        form for reading in readings for form in {reading.partition("\x00")[0], reading.replace("\x00", "")}
    ]


def _absolute(path: str, folder: str) -> str:
    normal = posixpath.normpath(posixpath.join(folder, path))
    # POSIX keeps two leading slashes; every file system reads them as one.
    return normal[1:] if normal.startswith("//") else normal


def _ascii_host(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""
