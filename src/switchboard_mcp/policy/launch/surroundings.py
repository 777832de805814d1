"""Finds what an interpreter loads besides the script: modules beside it, startup files, settings of its folder.

A file that somebody adds there would run with an approved script. So Python runs isolated, or the folder is pinned with
the script; files that an interpreter looks for by name are pinned as they are, and so is their absence.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from switchboard_mcp.policy.launch.file_inspector import MAX_TREE_FILES

PYTHONS = frozenset(("python", "pypy", "graalpy"))
# Loaded by Python at its start: they may contain code.
_SITE_FILES = ("*.pth", "sitecustomize*", "usercustomize*")
JAVASCRIPT = frozenset(("node", "nodejs", "bun", "deno", "tsx", "ts-node"))
# Files that interpreters look for in the working folder, and beside the script.
_STARTUP_FILES: dict[str, tuple[str, ...]] = {
    "bun": ("bunfig.toml", ".env", ".env.*", "tsconfig.json"),
    "deno": ("deno.json", "deno.jsonc", "deno.lock", "import_map.json"),
    **dict.fromkeys(("tsx", "ts-node"), ("tsconfig.json",)),
    **dict.fromkeys(("r", "rscript"), (".Rprofile", ".Renviron", ".RData")),
    **dict.fromkeys(("lua", "luajit"), ("*.lua", "*.so")),
    **dict.fromkeys(("erl", "elixir", "iex"), (".erlang", ".iex.exs")),
    "ocaml": (".ocamlinit",),
    "octave": (".octaverc",),
    "runghc": (".ghci",),
    "dotnet": ("global.json", "*.runtimeconfig.json"),
    "php": ("php.ini", ".user.ini"),
    "jruby": (".jrubyrc",),
}
_MODULE_PLACES = ("lib/python3*/site-packages", "lib/python3*", "lib/python3/dist-packages")
_PYTHON_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE)
_RELATIVE_IMPORT = re.compile(
    rb"""(?:\brequire|\bimport|\bfrom|require_relative)\s*\(?\s*['"`]\.{0,2}/?[\w.]"""
)
_RELATIVE_PATH = re.compile(rb"""(?:\brequire|\bimport|\bfrom)\s*\(?\s*['"`]\.{1,2}/""")


class WatchedNames(Struct, frozen=True):
    """Names in a folder whose files are pinned as they are, also if there are none."""

    folder: str
    names: tuple[str, ...]


class Surroundings(Struct, frozen=True, kw_only=True):
    """The flags for an interpreter, the folders to pin, and the names to watch."""

    flags: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    watched: tuple[WatchedNames, ...] = ()


class Unprotected(Struct, frozen=True):
    """The reason why what a script loads cannot be pinned."""

    why: str


class Location(Struct, frozen=True):
    """The folders of a launch, and the child's own variables."""

    folder: str
    workspace: str
    home: str
    environ: Mapping[str, str]


def find_surroundings(
    name: str, interpreter: str, script: str, packages: Sequence[str], location: Location
) -> Surroundings | Unprotected:
    """Return how to run a script so that only what is pinned is loaded. `packages` are pinned anyway."""
    beside = os.path.dirname(script)
    folders: tuple[str, ...] = ()
    if not any(_is_inside(script, package) for package in packages) and _uses_neighbours(name, script):
        if not _can_be_pinned(beside, location):
            why = f"{script} loads files beside it, and {beside} cannot be pinned"
            return Unprotected(f"{why}: put the script into a folder of its own")
        folders = (beside,)
    pinned = [*packages, *folders]
    if name in PYTHONS:
        flags = ("-s",) if folders else _isolation(name, interpreter, location)
        return Surroundings(flags=flags, folders=folders, watched=python_startup_files(interpreter))
    watched = [WatchedNames(place, _STARTUP_FILES[name]) for place in _places(name, location.folder, beside)]
    if name in JAVASCRIPT and not any(_is_inside(script, place) for place in pinned):
        watched += _module_lookup(beside, location.workspace)
    return Surroundings(folders=folders, watched=tuple(dict.fromkeys(watched)))


def python_startup_files(python: str) -> tuple[WatchedNames, ...]:
    """Return the files that decide what Python runs at its start, beside it and among installed packages."""
    places = (os.path.dirname(python), os.path.dirname(os.path.dirname(python)))
    libraries = dict.fromkeys(library_folders(python))
    if os.path.exists(os.path.join(places[1], "pyvenv.cfg")):
        # An environment has packages of its own, and the standard library of another interpreter.
        base = library_folders(os.path.realpath(python))
        libraries |= dict.fromkeys(folder for folder in base if not folder.endswith("-packages"))
    return (
        *(WatchedNames(place, ("pyvenv.cfg",)) for place in places),
        *(WatchedNames(folder, _SITE_FILES) for folder in libraries),
    )


def library_folders(python: str) -> Iterator[str]:
    """Yield the folders in which an interpreter finds installed packages and its own."""
    prefixes = [os.path.dirname(os.path.dirname(python))]
    if not os.path.exists(os.path.join(prefixes[0], "pyvenv.cfg")):
        prefixes.append(os.path.dirname(os.path.dirname(os.path.realpath(python))))
        if prefixes[-1] == "/usr":
            prefixes.append("/usr/local")
    version = re.search(r"python(\d+\.\d+)", os.path.realpath(python))
    for prefix in dict.fromkeys(prefixes):
        for place in _MODULE_PLACES:
            inner = place.replace("3*", version[1]) if version else place
            yield from glob_in(prefix, inner)


def glob_in(folder: str, pattern: str) -> list[str]:
    """Return the sorted paths in a folder that match a pattern."""
    from glob import escape, glob

    return sorted(glob(os.path.join(escape(folder), pattern)))


def is_isolated(flags: Sequence[str]) -> bool:
    """Return True if Python does not look for modules in the folder of its script, or in the working folder."""
    return any(re.fullmatch(r"-[A-Za-z]*[IP][A-Za-z]*", flag) for flag in flags)


def _isolation(name: str, python: str, location: Location) -> tuple[str, ...]:
    # -I also ignores PYTHON* variables, which are approved by their value; -P needs Python 3.11.
    version = re.search(r"python(\d+)\.(\d+)", os.path.realpath(python))
    new = name == "python" and (version is None or (int(version[1]), int(version[2])) >= (3, 11))
    sets_variables = any(variable.startswith("PYTHON") for variable in location.environ)
    return ("-P", "-s") if new and sets_variables else ("-I",)


def _uses_neighbours(name: str, script: str) -> bool:
    """Return True if a script names files beside it. It is approved as it is, so its text can be relied on."""
    try:
        with open(script, "rb") as file:
            text = file.read()
    except OSError:
        return False
    beside = os.path.dirname(script)
    if name in PYTHONS:
        return any(_is_module(beside, module) for module in _modules_in(text) - sys.stdlib_module_names)
    if name in JAVASCRIPT:
        return _RELATIVE_PATH.search(text) is not None
    return b"require_relative" in text or (
        name in ("php", "lua") and _RELATIVE_IMPORT.search(text) is not None
    )


def imported_modules(script: str) -> set[str]:
    """Return the names of the top-level modules that a Python script imports; empty if it cannot be read."""
    try:
        with open(script, "rb") as file:
            return _modules_in(file.read())
    except OSError:
        return set()


def _modules_in(text: bytes) -> set[str]:
    lists = (match[1].decode().split(",") for match in _PYTHON_IMPORT.finditer(text))
    return {module.strip().partition(".")[0] for modules in lists for module in modules}


def _is_module(folder: str, name: str) -> bool:
    if not name:
        return False
    path = os.path.join(folder, name)
    return os.path.isdir(path) or any(os.path.exists(f"{path}{ending}") for ending in (".py", ".so", ".pyc"))


def _can_be_pinned(folder: str, location: Location) -> bool:
    """Return True if a folder belongs to a server: it is neither the workspace, nor the home folder, nor shared."""
    outer = (location.workspace, location.home, "/usr/bin", "/usr/local/bin")
    if any(place and _is_inside(place, folder) for place in outer) or os.path.basename(folder) in (
        "bin",
        "sbin",
    ):
        return False
    files = 0
    for _, _, names in os.walk(folder):
        files += len(names)
        if files > MAX_TREE_FILES:
            return False
    return True


def _places(name: str, *folders: str) -> list[str]:
    return list(dict.fromkeys(folders)) if name in _STARTUP_FILES else []


def _module_lookup(beside: str, workspace: str) -> list[WatchedNames]:
    """Return the names by which Node finds the type of a script, and packages nearer than those that there are."""
    watched: list[WatchedNames] = []
    folder, names = beside, {"package.json", "node_modules"}
    while names:
        here = [name for name in sorted(names) if name == "package.json" or not _exists(folder, name)]
        if here:
            watched.append(WatchedNames(folder, tuple(here)))
        names -= {name for name in names if _exists(folder, name)}
        if folder == workspace or not _is_inside(folder, workspace):
            break
        folder = os.path.dirname(folder)
    return watched


def _exists(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))


def _is_inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")
