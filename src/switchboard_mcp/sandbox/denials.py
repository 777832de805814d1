"""Recognises what a sandbox has refused in the words of a child, and names the setting that would allow it.

Refused hosts are known exactly. Refused files are found in error messages: a word for the refusal, and a path that the
sandbox does not cover. A message that the sandbox does not explain gets no explanation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from switchboard_mcp.sandbox.plan import SandboxPlan, is_covered

REFUSALS = re.compile(
    r"\b(EACCES|EPERM|EROFS|ENOENT|Permission denied|Operation not permitted|Read-only file system|"
    r"No such file or directory)\b",
    re.IGNORECASE,
)
# A server refuses by rules of its own, whatever its sandbox allows.
OWN_RULES = re.compile(r"\b(outside|not in|not one of)\b.*\ballowed\b|\baccess denied\b", re.IGNORECASE)
NETWORK_REFUSALS = re.compile(
    r"\b(ECONNREFUSED|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ECONNRESET|getaddrinfo|Connection refused|"
    r"Network is unreachable|Name or service not known|Temporary failure in name resolution|fetch failed)\b"
)
# Words of libraries that hide the reason. Together with the address of a host they explain enough.
NETWORK_WORDS = re.compile(
    r"connect|dns|fetch|network|offline|request|resolv|socket|time[d ]{0,2}out", re.IGNORECASE
)
URL = re.compile(r"\b(?:https?|wss?)://([A-Za-z0-9_][A-Za-z0-9_.-]{0,252})(?::(\d{1,5}))?")
# A path in a message: in quotes, or absolute up to a quote, a bracket, a comma or white space.
PATH = re.compile(r"(?<![\w.:/])/[^\s'\"`,;:()\[\]{}<>|]{1,400}|(?<=')[\w.~-][^\n'\"]{0,400}(?=')")
# Lines of a stack trace name the files of the program, not those that it was refused.
STACK = re.compile(r"\s*(File \"|at )")
# Beyond this a message is a result, not an error.
MAX_CHARS = 20_000
MAX_PATHS = 50
MAX_RULE_CHARS = 500
MISSING = ("ENOENT", "NO SUCH FILE OR DIRECTORY")
# Folders with fewer parts, such as /home/me, hold too much to be proposed.
MIN_FOLDER_PARTS = 3


class Denial(Struct, frozen=True):
    """One refusal: a `file` or a `host`, the setting that would allow it, and the value to add to it if known.

    `must_exist` is True for a path that has to be created before it can be allowed.
    """

    kind: str
    target: str
    setting: str
    value: str
    must_exist: bool = False

    def sentence(self, child: str) -> str:
        """Return the refusal with its remedy."""
        verb = "reach" if self.kind == "host" else "use"
        setting = f"suites.{child}.sandbox.{self.setting}"
        remedy = f"add `{self.value}` to {setting}" if self.value else f"change {setting}"
        remedy = f"create it and {remedy}" if self.must_exist else remedy
        return f"The sandbox of '{child}' does not let it {verb} {self.target}. To allow it, {remedy}."


def find_denials(text: str, plan: SandboxPlan) -> list[Denial]:
    """Return the refusals that an error message speaks of."""
    text = text[:MAX_CHARS]
    found: dict[str, Denial] = {}
    for path, refusal in islice(_refused_paths(text, plan.launch.cwd), MAX_PATHS):
        denial = _file_denial(path, refusal, plan)
        if denial is not None:
            found.setdefault(denial.target, denial)
    return list(found.values())[:3]


def _refused_paths(text: str, cwd: str) -> Iterator[tuple[str, str]]:
    """Yield the paths that lines of a message name, with the word for a refusal in the line, or an empty string."""
    for line in text.splitlines():
        if not STACK.match(line):
            refusal = REFUSALS.search(line)
            if refusal is None and OWN_RULES.search(line[:MAX_RULE_CHARS]):
                continue
            for match in PATH.finditer(line):
                if refusal is not None or match[0].startswith("/"):
                    path = os.path.normpath(os.path.join(cwd, match[0].rstrip(".")))
                    yield path, refusal[1].upper() if refusal is not None else ""


def _file_denial(path: str, refusal: str, plan: SandboxPlan) -> Denial | None:
    """Return the refusal of a path, if the sandbox is the reason for it."""
    if any(_is_below(path, one) for one in plan.protect):
        return Denial("file", path, "files.protect", "") if refusal else None
    if path == "/" or (path.startswith(("/proc/", "/dev/", "/sys/")) and not is_covered(path, plan.read)):
        return None
    if is_covered(path, plan.write) and not is_covered(path, ()):
        return None  # it may write there, so the reason is another
    is_read = is_covered(path, plan.read)
    exists = os.path.lexists(path)
    if not refusal or refusal in MISSING:
        # A path that the view does not have looks missing; one that really is missing is not our doing.
        if exists and not is_read:
            return Denial("file", path, "files.read", path)
        folder = os.path.dirname(path)
        if _is_below(path, "/tmp"):  # the child's own
            return None
        if not refusal or is_covered(folder, plan.read) or not os.path.isdir(folder):
            return None
    return _write_denial(path, plan, exists)


def _write_denial(path: str, plan: SandboxPlan, exists: bool) -> Denial:
    """Return the refusal of a path that is to be written; of its folder if it does not exist yet."""
    folder = os.path.dirname(path)
    is_narrow = folder.count("/") >= MIN_FOLDER_PARTS and not _is_below(plan.home, folder)
    if exists or not is_narrow or not os.path.isdir(folder):
        return Denial("file", path, "files.write", path, must_exist=not exists)
    return Denial("file", path, "files.write", folder)


def network_denial(text: str, network: str) -> Denial | None:
    """Return the refusal that an error message speaks of, for a child without a network to others."""
    hosts = [match for match in URL.finditer(text) if match[1] not in ("localhost", "127.0.0.1")]
    if not NETWORK_REFUSALS.search(text) and not (hosts and NETWORK_WORDS.search(text)):
        return None
    if hosts:
        return host_denial(hosts[0][1].rstrip(".").lower(), int(hosts[0][2] or 0))
    return Denial("host", f"the network (it is `{network}`)", "network", "")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def host_denial(host: str, port: int) -> Denial:
    """Return the refusal of a host; port 0 if only its name was asked for."""
    name = f"[{host}]" if ":" in host else host
    return Denial("host", host, "network", f"{name}:{port}" if port not in (0, 80, 443) else name)


def sentences(denials: Iterable[Denial], child: str) -> str:
    """Return refusals as text."""
    return " ".join(one.sentence(child) for one in denials)
