"""Where package runners keep what they run: `npx` and its kin, `uvx` and its kin.

Owns the folders of npm, uv and pipx, and which program of a package is meant. Nothing is downloaded or installed: what
is not here cannot be approved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from switchboard_mcp.policy.launch.programs import (
    Resolved,
    Search,
    Unresolved,
    manifest_of,
    matching,
    script,
)

_EXACT = re.compile(r"\d+\.\d+[\w.+-]*")


class PackageRequest(Struct, frozen=True):
    """What a package runner was told: a package, perhaps its version, perhaps one of its programs."""

    package: str
    version: str
    program: str
    taken: int


def asked_for(words: Sequence[str], *, python: bool) -> PackageRequest | Unresolved:
    quiet = {"-y", "--yes", "-q", "--quiet", "--offline", "--prefer-offline", "--no-install", "--"}
    naming = {"--from", "--spec"} if python else {"-p", "--package"}
    package = ""
    index = 0
    while index < len(words):
        word = words[index]
        flag, equals, value = word.partition("=")
        if flag in naming:
            if package:
                return Unresolved("names several packages", "Configure the program itself.")
            package = value if equals else words[index + 1] if index + 1 < len(words) else ""
            index += 1 if equals else 2
        elif word in quiet:
            index += 1
        elif word.startswith("-"):
            return Unresolved(f"`{flag}` of the package runner cannot be followed", "Leave it out.")
        else:
            name, version = _split(package or word)
            program = _split(word)[0] if package else ""
            return PackageRequest(name, version, program, index + 1)
    return Unresolved("names no package")


def _split(written: str) -> tuple[str, str]:
    """Name and version of `name@1.2`, `@scope/name@1.2` or `name==1.2`; extras of Python packages are left out."""
    at = written.find("@", 1)
    name, version = (written[:at], written[at + 1 :]) if at > 0 else (written, "")
    if "==" in name:
        name, _, version = name.partition("==")
    return name.partition("[")[0], version.removeprefix("v")


def npm_package(asked: PackageRequest, taken: int, search: Search) -> Resolved | Unresolved:
    if not re.fullmatch(r"(?:@[\w.~-]+/)?[\w.~-]+", asked.package) or asked.package.startswith("."):
        return Unresolved(
            f"'{asked.package}' is no name of a package", "Only packages by name can be approved."
        )
    seen: list[str] = []
    for folder in _npm_folders(search):
        place = os.path.join(folder, asked.package)
        manifest = manifest_of(place)
        if manifest is None:
            continue
        seen.append(manifest.version)
        if _EXACT.fullmatch(asked.version) and manifest.version != asked.version:
            continue
        programs = manifest.bin if isinstance(manifest.bin, dict) else {}
        if isinstance(manifest.bin, str):
            programs = {asked.package.rpartition("/")[2]: manifest.bin}
        wanted = asked.program or asked.package.rpartition("/")[2]
        chosen = programs.get(wanted) or (next(iter(programs.values())) if len(programs) == 1 else "")
        if not chosen:
            return Unresolved(f"{place} has no program '{wanted}' (it has {', '.join(programs) or 'none'})")
        path = os.path.realpath(os.path.join(place, chosen))
        if not path.startswith(os.path.realpath(place) + "/") or not os.path.isfile(path):
            return Unresolved(f"{place}: its program {chosen} is not in the package")
        return script(path, taken, search, f"npm:{asked.package}@{manifest.version}")
    version = f"@{asked.version}" if asked.version else ""
    found = f" (found: {', '.join(seen)})" if seen else ""
    return Unresolved(
        f"the package {asked.package}{version} is not installed here{found}",
        f"Install it, for example with `npm install {asked.package}{version}` in the workspace, then approve.",
    )


def _npm_folders(search: Search) -> Iterator[str]:
    """Where npx would find it: the project and those around it, its cache (newest first), the global folder."""
    folder = search.folder
    while True:
        yield os.path.join(folder, "node_modules")
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    cache = search.environ.get("npm_config_cache") or search.home(".npm")
    yield from _newest(matching(cache, "_npx/*/node_modules"))
    npx = search.program("npx") or search.program("node")
    if npx:
        yield os.path.join(os.path.dirname(os.path.dirname(npx)), "lib", "node_modules")


def python_tool(asked: PackageRequest, taken: int, search: Search) -> Resolved | Unresolved:
    program = asked.program or asked.package
    if not re.fullmatch(r"[\w.-]+", program) or not re.fullmatch(r"[\w.-]+", asked.package):
        return Unresolved(
            f"'{asked.package}' is no name of a package", "Only packages by name can be approved."
        )
    seen: list[str] = []
    for folder in _tool_folders(asked.package, search):
        path = os.path.join(folder, "bin", program)
        if not os.path.isfile(path):
            continue
        version = _installed(folder, asked.package)
        seen.append(version)
        if _EXACT.fullmatch(asked.version) and version != asked.version:
            continue
        return script(path, taken, search, f"pypi:{asked.package}@{version}")
    found = f" (found: {', '.join(filter(None, seen))})" if any(seen) else ""
    return Unresolved(
        f"the tool {asked.package} is not installed here{found}",
        f"Install it, for example with `uv tool install {asked.package}`, then approve.",
    )


def _tool_folders(package: str, search: Search) -> Iterator[str]:
    """Environments of one tool each: uv's, pipx's, then what `uvx` keeps in its cache, newest first."""
    data = search.environ.get("XDG_DATA_HOME") or search.home(".local/share")
    cache = search.environ.get("XDG_CACHE_HOME") or search.home(".cache")
    yield os.path.join(search.environ.get("UV_TOOL_DIR") or os.path.join(data, "uv/tools"), package)
    for folder in (search.environ.get("PIPX_HOME") or os.path.join(data, "pipx"), search.home(".local/pipx")):
        yield os.path.join(folder, "venvs", package)
    yield from _newest(
        matching(search.environ.get("UV_CACHE_DIR") or os.path.join(cache, "uv"), "archive-v0/*")
    )


def _installed(environment: str, package: str) -> str:
    """The version of a package in an environment, by the folder that every installer leaves."""
    wanted = _plain(package)
    for place in matching(environment, "lib/python3*/site-packages/*.dist-info"):
        name, _, version = os.path.basename(place).removesuffix(".dist-info").rpartition("-")
        if _plain(name) == wanted:
            return version
    return ""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _newest(folders: Iterable[str]) -> list[str]:
    return sorted(folders, key=lambda folder: (-os.stat(folder).st_mtime_ns, folder))
