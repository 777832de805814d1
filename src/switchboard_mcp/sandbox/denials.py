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
    r"No such file or directory|access denied)\b",
    re.IGNORECASE,
)
NETWORK_REFUSALS = re.compile(
    r"\b(ECONNREFUSED|ENETUNREACH|ENOTFOUND|EAI_AGAIN|ECONNRESET|getaddrinfo|Connection refused|"
    r"Network is unreachable|Name or service not known|Temporary failure in name resolution|fetch failed)\b"
)
# A path in a message: in quotes, or absolute up to a quote, a bracket, a comma or white space.
PATH = re.compile(r"(?<![\w.:/])/[^\s'\"`,;:()\[\]{}<>|]{1,400}|(?<=')[\w.~-][^\n'\"]{0,400}(?=')")
# Lines of a stack trace name the files of the program, not those that it was refused.
STACK = re.compile(r"\s*(File \"|at )")
# Beyond this a message is a result, not an error.
MAX_CHARS = 20_000
MAX_PATHS = 50
MISSING = ("ENOENT", "NO SUCH FILE OR DIRECTORY")


class Denial(Struct, frozen=True):
    """One refusal: a `file` or a `host`, the setting that would allow it, and the value to add to it if known."""

    kind: str
    target: str
    setting: str
    value: str

    def sentence(self, child: str) -> str:
        """Return the refusal with its remedy."""
        verb = "reach" if self.kind == "host" else "use"
        setting = f"suites.{child}.sandbox.{self.setting}"
        remedy = f"add `{self.value}` to {setting}" if self.value else f"change {setting}"
        return f"The sandbox of '{child}' does not let it {verb} {self.target}. To allow it, {remedy}."


def find_denials(text: str, plan: SandboxPlan) -> list[Denial]:
    """Return the refusals that an error message speaks of."""
    text = text[:MAX_CHARS]
    found: dict[str, Denial] = {}
    for path, is_missing in islice(_refused_paths(text, plan.launch.cwd), MAX_PATHS):
        denial = _file_denial(path, is_missing, plan)
        if denial is not None:
            found.setdefault(denial.target, denial)
    return list(found.values())[:3]


def _refused_paths(text: str, cwd: str) -> Iterator[tuple[str, bool]]:
    """Yield the paths of lines that speak of a refusal, and True if the line says that the path is missing."""
    for line in text.splitlines():
        refusal = REFUSALS.search(line)
        if refusal is not None and not STACK.match(line):
            for match in PATH.finditer(line):
                yield os.path.normpath(os.path.join(cwd, match[0].rstrip("."))), refusal[1].upper() in MISSING


def _file_denial(path: str, is_missing: bool, plan: SandboxPlan) -> Denial | None:
    if any(_is_below(path, one) for one in plan.protect):
        return Denial("file", path, "files.protect", "")
    if path == "/" or (
        path.startswith(("/proc/", "/dev/", "/tmp/", "/sys/")) and not is_covered(path, plan.read)
    ):
        return None
    if is_covered(path, plan.write) and not is_covered(path, ()):
        return None  # it may write there, so the reason is another
    # A path that the view does not have looks missing; one that really is missing is not our doing.
    if is_missing and (is_covered(path, plan.read) or not os.path.lexists(path)):
        return None
    setting = "files.write" if is_covered(path, plan.read) or not is_missing else "files.read"
    return Denial("file", path, setting, path)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def host_denial(host: str, port: int) -> Denial:
    """Return the refusal of a host; port 0 if only its name was asked for."""
    name = f"[{host}]" if ":" in host else host
    return Denial("host", host, "network", f"{name}:{port}" if port not in (0, 80, 443) else name)


def sentences(denials: Iterable[Denial], child: str) -> str:
    """Return refusals as text."""
    return " ".join(one.sentence(child) for one in denials)
