"""The forms in which a server may read one text: as a path, decoded, normalized, and with links resolved.

A rule that denies must hold for every form of a path; a rule that allows, or one about what is inside a folder, for all
of them. Pure: `resolve` looks at the disk.
"""

from __future__ import annotations

import posixpath
import re
import socket
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

# Returns the target of the symbolic links in an absolute path.
Resolve = Callable[[str], str]

# Longer than any path, so that a longer text cannot be one.
MAX_PATH_CHARS = 4_096
# Splitting a longer URL of unusual characters would hold the interpreter; its host is not sure then.
MAX_URL_CHARS = 8_192
# Escapes within escapes: `%252e` is `%2e` is `.`.
MAX_DECODINGS = 3
# White space and invisible characters around a text, which one program or another drops.
BLANK = (
    "".join(char for char in map(chr, range(0x10000)) if char.isspace() or char <= " ")
    + "\x7f\u200b\u2060\ufeff"
)
VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})|%([A-Za-z_]\w*)%")
HOME_VARIABLES = frozenset({"HOME", "USERPROFILE"})
FOLDER_VARIABLES = frozenset({"PWD", "CD", "INIT_CWD"})
# Name folders that depend on the server's process.
UNKNOWN_FOLDER = re.compile(r"OLDPWD|TMPDIR|TE?MP|XDG_\w+|(LOCAL)?APPDATA|PROGRAMDATA")
NOT_IN_A_URL = re.compile(r"[\s\\\x00]")
# A text without any of these has one reading as a path.
UNUSUAL = re.compile(r"[^\x21-\x7e]|[$\\~:%]|^@")
WEB_SCHEMES = frozenset({"http", "https", "ws", "wss", "ftp"})
# A URL that every program reads in the same way, and whose host is a name. Most are of this kind, and a match is
# several times faster than splitting. There is one way to cut a text into labels, so the time of a long one is linear.
PLAIN_URL = re.compile(
    r"(?:https?|wss?|ftp)://((?:[A-Za-z0-9-]+\.)*[A-Za-z][A-Za-z0-9-]*)(?::[0-9]{1,5})?(?:[/?#][!-\[\]-~]*)?"
)
MAPPED = bytes(10) + b"\xff\xff"


def path_forms(text: str, folder: str, home: str, resolve: Resolve) -> list[str]:
    """Return the absolute paths that a text may stand for, without `.` and `..`, relative to `folder`.

    >>> path_forms("%2e%2e/b", "/w/a", "/h", lambda path: path)
    ['/w/a/%2e%2e/b', '/w/b']
    """
    found: list[str] = []
    for joined in absolute_forms(text, folder, home):
        path = _normal(joined)
        real = resolve(path)
        found.append(path)
        if real != path:
            found.append(_normal(real))
        if ".." in joined:  # `link/../x` is beside the target of the link
            found.append(_normal(resolve(joined)))
    return found if len(found) == 1 else list(dict.fromkeys(found))


def written_path_forms(text: str, folder: str, home: str) -> list[str]:
    """Return those of the paths that a text may stand for that can be told without a look at the disk."""
    return list(dict.fromkeys(map(_normal, absolute_forms(text, folder, home))))


def absolute_forms(text: str, folder: str, home: str) -> list[str]:
    """Return the readings of a text as an absolute path, each of them as it is written."""
    if UNUSUAL.search(text) is None:
        return [text if text[:1] == "/" else f"{folder}/{text}"]
    return [
        written if written[:1] == "/" else f"{folder}/{written}"
        for spelling in _decoded(text)
        for written in _local_forms(spelling, folder, home)
    ]


def text_forms(text: str) -> list[str]:
    """Return a text as it is and with its escapes decoded."""
    return list(_decoded(text))


def hosts_of(text: str) -> list[str]:
    """Return the hosts that a URL may lead to, in lower case, addresses as programs write them; empty if none is sure.

    >>> hosts_of("http:evil.test"), hosts_of("http://2130706433/"), hosts_of("http://[::ffff:10.0.0.1]/")
    (['http', 'evil.test'], ['127.0.0.1'], ['::ffff:a00:1', '10.0.0.1'])
    """
    plain = PLAIN_URL.fullmatch(text)
    if plain is not None:
        return [plain[1].lower()]
    if len(text) > MAX_URL_CHARS:
        return []
    host = host_of(text)
    found = [host] if host else []
    scheme, colon, rest = text.strip().partition(":")
    # Browsers and many clients read `http:x` and `http:/x` as `http://x`.
    if colon and scheme.casefold() in WEB_SCHEMES and not rest.startswith("//"):
        found.append(host_of("//" + rest.lstrip("/")))
    if len(found) == 1:
        return _addresses(found[0])
    return list(dict.fromkeys(form for host in found for form in _addresses(host) if form))


def host_of(text: str) -> str:
    """Return the host that a URL leads to, in lower case; empty if the text has none, or more than one reading."""
    spelled = text.strip()
    if NOT_IN_A_URL.search(spelled):
        return ""
    try:
        parts = urlsplit(spelled if "://" in spelled or spelled.startswith("//") else f"//{spelled}")
        host = (parts.hostname or "").rstrip(".").casefold()
    except ValueError:
        return ""
    if not host or "%" in host or "@" in host:
        return ""
    return host if host.isascii() else _ascii_host(host)


def as_folder(path: str) -> str:
    """Return an absolute path with a slash at its end; one inside a folder begins with the folder.

    >>> as_folder("/a/bc").startswith(as_folder("/a/b")), as_folder("/a/b/c").startswith(as_folder("/a/b"))
    (False, True)
    """
    return f"{path.rstrip('/')}/"


def _decoded(text: str) -> dict[str, None]:
    found = {text: None}
    if "%" not in text:
        return found
    for _ in range(MAX_DECODINGS):
        text = unquote(text, errors="replace")
        found[text] = None
    return found


def has_unknown_folder(text: str) -> bool:
    """Return True if a text names a variable for a folder that only the server knows.

    >>> has_unknown_folder("$TMPDIR/x"), has_unknown_folder("$HOME/x")
    (True, False)
    """
    if "$" not in text and "%" not in text:
        return False
    return any(
        UNKNOWN_FOLDER.fullmatch((match[1] or match[2] or match[3]).upper())
        for match in VARIABLE.finditer(text)
    )


def _local_forms(text: str, folder: str, home: str) -> list[str]:
    """Return the readings of a text as a path: with `file:`, `@`, `~`, variables and backslashes."""

    def value_of(match: re.Match[str]) -> str:
        name = (match[1] or match[2] or match[3]).upper()
        # The value of another variable is not known here; it is outside of every folder.
        return home if name in HOME_VARIABLES else folder if name in FOLDER_VARIABLES else f"/{match[0]}"

    readings = [text.strip(BLANK)]
    if readings[0][:1] == "@":  # some programs read a file of arguments
        readings.append(readings[0][1:])
    if readings[0][:5].casefold() == "file:":
        readings += _file_uri_paths(readings[0][5:])
    if VARIABLE.search(text):
        readings.append(VARIABLE.sub(value_of, readings[-1]))
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


def _file_uri_paths(rest: str) -> list[str]:
    """Return the paths of a `file:` URI: some programs ignore its host, its query and its fragment."""
    with_host = "/" + rest.lstrip("/").removeprefix("localhost/")
    path = "/" + rest[2:].partition("/")[2].lstrip("/") if rest.startswith("//") else with_host
    return [with_host, path, re.split("[?#]", path, maxsplit=1)[0]]


def _normal(path: str) -> str:
    normal = posixpath.normpath(path)
    # POSIX keeps two leading slashes; every file system reads them as one.
    return normal[1:] if normal[:2] == "//" else normal


def _ascii_host(host: str) -> str:
    try:
        return host.encode("idna").decode().rstrip(".").casefold()
    except UnicodeError:
        return ""


def _addresses(host: str) -> list[str]:
    """Return a host as it is; if it is a number, the address that it stands for, and an IPv4 address within IPv6."""
    try:
        if ":" in host:
            address = socket.inet_ntop(socket.AF_INET6, packed := socket.inet_pton(socket.AF_INET6, host))
            mapped = packed[:12] == MAPPED
            # Some write the end of such an address with dots, others do not.
            return (
                [_without_dots(packed), socket.inet_ntop(socket.AF_INET, packed[12:])]
                if mapped
                else [address]
            )
        last = host[host.rfind(".") + 1 :]
        if last[:1].isdigit():
            return [socket.inet_ntop(socket.AF_INET, socket.inet_aton(host))]
    except OSError:
        pass
    return [host]


def _without_dots(packed: bytes) -> str:
    high, low = int.from_bytes(packed[12:14], "big"), int.from_bytes(packed[14:], "big")
    return f"::ffff:{high:x}:{low:x}"
