"""Resolves package runners (`npx`, `uvx` and the like) to the installed program that they would run.

Knows the folders of npm, uv and pipx. Nothing is downloaded or installed: a package that is not installed cannot be
approved. `resolve` also takes plain programs, which `programs` resolves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.config.models import ChildSpec
from switchboard_mcp.policy.launch.program_resolution import (
    Manifest,
    Resolved,
    Search,
    Unresolved,
    read_manifest,
    resolve_program,
    resolve_script,
)
from switchboard_mcp.policy.launch.surroundings import glob_in
from switchboard_mcp.policy.launch.text_rules import RUNNERS, program_name

# The subcommands that make a package manager a package runner.
_VERBS: dict[str, tuple[tuple[str, ...], ...]] = {
    "npx": ((),),
    "pnpx": ((),),
    "bunx": ((),),
    "uvx": ((),),
    "npm": (("exec",), ("x",)),
    "pnpm": (("dlx",),),
    "yarn": (("dlx",),),
    "uv": (("tool", "run"),),
    "pipx": (("run",),),
}
_PYTHON = frozenset(("uvx", "uv", "pipx"))
_EXACT = re.compile(r"\d+\.\d+[\w.+-]*")


class PackageRequest(Struct, frozen=True):
    """The arguments of a package runner: a package, and perhaps its version and program. `spec` is as written."""

    spec: str
    package: str
    version: str
    program: str
    args_used: int


def resolve(spec: ChildSpec, environ: Mapping[str, str], workspace: str = "") -> Resolved | Unresolved:
    """Resolve the command of a child, with variables expanded, to what really runs."""
    search = Search(spec.cwd, environ, workspace, spec.env)
    name = program_name(spec.command)
    if name in RUNNERS:
        return _resolve_runner(name, spec.args, search)
    path = search.program(spec.command)
    if path is None:
        return Unresolved(f"the program '{spec.command}' was not found")
    return resolve_program(path, spec.args, search)


def parse_runner(name: str, args: Sequence[str]) -> tuple[PackageRequest, int] | Unresolved | None:
    """Return the package that a runner is to run and the number of its own arguments; None if it is not a runner."""
    for verb in _VERBS.get(name, ()):
        if tuple(args[: len(verb)]) == verb:
            request = _parse_runner_args(args[len(verb) :], python=name in _PYTHON)
            return request if isinstance(request, Unresolved) else (request, len(verb) + request.args_used)
    return None


def _resolve_runner(name: str, args: Sequence[str], search: Search) -> Resolved | Unresolved:
    parsed = parse_runner(name, args)
    if parsed is None:
        return Unresolved(f"what `{name}` runs is unknown", "Configure the program itself.")
    if isinstance(parsed, Unresolved):
        return parsed
    package, replaces = parsed
    return (
        _python_tool(package, replaces, search)
        if name in _PYTHON
        else _npm_package(package, replaces, search)
    )


def _parse_runner_args(words: Sequence[str], *, python: bool) -> PackageRequest | Unresolved:
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
            return Unresolved(f"the package runner's flag `{flag}` is not supported", "Remove it.")
        else:
            name, version = _split(package or word)
            program = _split(word)[0] if package else ""
            return PackageRequest(package or word, name, version, program, index + 1)
    return Unresolved("names no package")


def _split(text: str) -> tuple[str, str]:
    """Split `name@1.2`, `@scope/name@1.2` or `name==1.2` into name and version, without extras."""
    at = text.find("@", 1)
    name, version = (text[:at], text[at + 1 :]) if at > 0 else (text, "")
    if "==" in name:
        name, _, version = name.partition("==")
    return name.partition("[")[0], version.removeprefix("v")


def _npm_package(request: PackageRequest, replaces: int, search: Search) -> Resolved | Unresolved:
    if not re.fullmatch(r"(?:@[\w.~-]+/)?[\w.~-]+", request.package) or request.package.startswith("."):
        return Unresolved(
            f"'{request.package}' is not a package name", "Only packages by name can be approved."
        )
    seen: list[str] = []
    for folder in _npm_folders(search):
        place = os.path.join(folder, request.package)
        manifest = read_manifest(place)
        if manifest is None:
            continue
        seen.append(manifest.version)
        if _EXACT.fullmatch(request.version) and manifest.version != request.version:
            continue
        path = _npm_program(place, manifest, request)
        if isinstance(path, Unresolved):
            return path
        return resolve_script(path, replaces, search, f"npm:{request.package}@{manifest.version}")
    version = f"@{request.version}" if request.version else ""
    installed = f" (found: {', '.join(seen)})" if seen else ""
    return Unresolved(
        f"the package {request.package}{version} is not installed here{installed}",
        f"Install it, for example with `npm install {request.package}{version}` in the workspace, then approve.",
    )


def _npm_program(place: str, manifest: Manifest, request: PackageRequest) -> str | Unresolved:
    """Return the file of a package's program."""
    programs = manifest.bin if isinstance(manifest.bin, dict) else {}
    if isinstance(manifest.bin, str):
        programs = {request.package.rpartition("/")[2]: manifest.bin}
    program = request.program or request.package.rpartition("/")[2]
    chosen = programs.get(program) or (next(iter(programs.values())) if len(programs) == 1 else "")
    if not chosen:
        return Unresolved(f"{place} has no program '{program}' (it has {', '.join(programs) or 'none'})")
    path = os.path.realpath(os.path.join(place, chosen))
    if not path.startswith(os.path.realpath(place) + "/") or not os.path.isfile(path):
        return Unresolved(f"{place}: its program {chosen} is not in the package")
    return path


def program_in(request: PackageRequest, folder: str, runner: str) -> str:
    """Return the program of a package that was installed into a folder of its own, or an empty string."""
    if runner in _PYTHON:
        program = request.program or request.package
        places = glob_in(folder, f"tools/*/bin/{program}") + glob_in(folder, f"venvs/*/bin/{program}")
        return next((path for path in places if os.path.isfile(path)), "")
    place = os.path.join(folder, "node_modules", request.package)
    manifest = read_manifest(place)
    candidate = _npm_program(place, manifest, request) if manifest is not None else ""
    return candidate if isinstance(candidate, str) else ""


def _npm_folders(search: Search) -> Iterator[str]:
    """Yield the folders in npx's search order: the project and its parents, the cache (newest first), global."""
    folder = search.folder
    while True:
        yield os.path.join(folder, "node_modules")
        if folder == os.path.dirname(folder):
            break
        folder = os.path.dirname(folder)
    cache = search.environ.get("npm_config_cache") or search.home(".npm")
    yield from _newest(glob_in(cache, "_npx/*/node_modules"))
    npx = search.program("npx") or search.program("node")
    if npx:
        yield os.path.join(os.path.dirname(os.path.dirname(npx)), "lib", "node_modules")


def _python_tool(request: PackageRequest, replaces: int, search: Search) -> Resolved | Unresolved:
    program = request.program or request.package
    if not re.fullmatch(r"[\w.-]+", program) or not re.fullmatch(r"[\w.-]+", request.package):
        return Unresolved(
            f"'{request.package}' is not a package name", "Only packages by name can be approved."
        )
    seen: list[str] = []
    for folder in _tool_folders(request.package, search):
        path = os.path.join(folder, "bin", program)
        if not os.path.isfile(path):
            continue
        version = _installed(folder, request.package)
        seen.append(version)
        if _EXACT.fullmatch(request.version) and version != request.version:
            continue
        return resolve_script(path, replaces, search, f"pypi:{request.package}@{version}")
    installed = f" (found: {', '.join(filter(None, seen))})" if any(seen) else ""
    return Unresolved(
        f"the tool {request.package} is not installed here{installed}",
        f"Install it, for example with `uv tool install {request.package}`, then approve.",
    )


def _tool_folders(package: str, search: Search) -> Iterator[str]:
    """Yield the environments of a tool: uv's, pipx's, then the cache of `uvx`, newest first."""
    data = search.environ.get("XDG_DATA_HOME") or search.home(".local/share")
    cache = search.environ.get("XDG_CACHE_HOME") or search.home(".cache")
    yield os.path.join(search.environ.get("UV_TOOL_DIR") or os.path.join(data, "uv/tools"), package)
    for folder in (search.environ.get("PIPX_HOME") or os.path.join(data, "pipx"), search.home(".local/pipx")):
        yield os.path.join(folder, "venvs", package)
    yield from _newest(
        glob_in(search.environ.get("UV_CACHE_DIR") or os.path.join(cache, "uv"), "archive-v0/*")
    )


def _installed(environment: str, package: str) -> str:
    """Return the version of a package in an environment, from its dist-info folder."""
    canonical = _canonical(package)
    for place in glob_in(environment, "lib/python3*/site-packages/*.dist-info"):
        name, _, version = os.path.basename(place).removesuffix(".dist-info").rpartition("-")
        if _canonical(name) == canonical:
            return version
    return ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _newest(folders: Iterable[str]) -> list[str]:
    return sorted(folders, key=lambda folder: (-os.stat(folder).st_mtime_ns, folder))
