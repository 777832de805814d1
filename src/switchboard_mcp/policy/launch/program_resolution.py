"""Resolves a program to what really runs: a binary, an interpreter with its script, or a script with a shebang line.

Also finds the package that a script belongs to. Nothing is run to find out. What cannot be resolved is refused, with a
hint.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.policy.launch.containers import image_flaw
from switchboard_mcp.policy.launch.surroundings import (
    Location,
    Unprotected,
    WatchedNames,
    find_surroundings,
    glob_in,
    library_folders,
    python_startup_files,
)
from switchboard_mcp.policy.launch.text_rules import (
    CONTAINERS,
    INTERPRETERS,
    SHELLS,
    interpreter_flaw,
    program_name,
    runs_others,
)

_TRAMPOLINE = re.compile(rb"""'''exec' "?([^"\n]+?)"? "\$0" "\$@\"""")
# The same with the interpreter next to the script, as in uv's cache.
_BESIDE = re.compile(rb"""'''exec' "\$\(dirname -- "\$\(realpath -- "\$0"\)"\)"/'([\w.-]+)' "\$0" "\$@"\n""")
_SHIM = re.compile(rb"^from ([A-Za-z_]\w*)[\w.]* import ", re.MULTILINE)
_BINARY = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa")


class Resolved(Struct, frozen=True, kw_only=True):
    """A resolved program: `argv` replaces the command and its first `replaces` arguments."""

    argv: list[str]
    replaces: int = 0
    files: list[str]
    watched: tuple[WatchedNames, ...] = ()
    package: str = ""


class Unresolved(Struct, frozen=True):
    """The reason that a program could not be resolved."""

    why: str
    hint: str = ""


class Search(Struct, frozen=True):
    """The folder and the environment in which a program is looked up."""

    folder: str
    environ: Mapping[str, str]
    workspace: str = ""
    variables: Mapping[str, str] = {}  # that the entry sets

    def location(self) -> Location:
        """Return the folders of the launch."""
        return Location(self.folder, self.workspace or self.folder, self.home(), self.variables)

    def home(self, *path: str) -> str:
        """Return a path in the home folder."""
        return os.path.join(self.environ.get("HOME", "/nonexistent"), *path)

    def program(self, name: str) -> str | None:
        """Return the absolute path of a program, or None."""
        if "/" in name:
            return name if os.path.isfile(name) and os.access(name, os.X_OK) else None
        path = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return os.path.normpath(path) if path and os.path.isabs(path) else None


def resolve_program(path: str, args: Sequence[str], search: Search) -> Resolved | Unresolved:
    """Resolve a program by its path: a binary, an interpreter with its script, or a script with a shebang line."""
    names = {program_name(path), program_name(os.path.realpath(path))}
    if names & SHELLS:
        return Unresolved(f"{path} is a shell; no shell is ever run")
    if runs_others(path) or runs_others(os.path.realpath(path)):
        return Unresolved(f"{path} runs another program", "Name that program itself.")
    head = _first_bytes(path)
    if head is None:
        return Unresolved(f"{path} cannot be read")
    if names & set(INTERPRETERS) and not head.startswith(b"#!"):
        return _interpreter(path, args, search)
    if names & set(CONTAINERS):
        problem = image_flaw(args)
        pin = "Write NAME@sha256:… as `docker images --digests` shows it."
        return Unresolved(f"{path}: {problem}", pin) if problem else Resolved(argv=[path], files=[path])
    if head.startswith(b"#!"):
        return resolve_script(path, 0, search)
    if head.startswith(_BINARY):
        return Resolved(argv=[path], files=[path])
    return Unresolved(f"{path} is neither a binary nor a script with a shebang line")


def _interpreter(path: str, args: Sequence[str], search: Search) -> Resolved | Unresolved:
    name = program_name(path) if program_name(path) in INTERPRETERS else program_name(os.path.realpath(path))
    problem = interpreter_flaw(name, args)
    if problem is not None:
        return Unresolved(f"args[{problem[0]}]: {problem[1]}")
    flags: list[str] = []
    for index, word in enumerate(args):
        if word == "-m" and name == "python":
            return _module(path, [flag for flag in flags if flag != "-I"], args[index + 1], index + 2)
        if word.startswith("-") or word == INTERPRETERS[name].verb:
            flags.append(word)
            continue
        file = os.path.realpath(os.path.join(search.folder, word))
        if not os.path.isfile(file):
            return Unresolved(f"the script {file} was not found")
        return _protected(name, [path, *flags], file, index + 1, search)
    return Unresolved(f"{name} has no script to run")


def _module(python: str, flags: list[str], module: str, replaces: int) -> Resolved | Unresolved:
    """Resolve `python -m` to a file. Runs isolated, so neither folder nor environment can shadow it."""
    inner = module.replace(".", "/")
    for place in library_folders(python):
        for path in (f"{place}/{inner}/__main__.py", f"{place}/{inner}.py"):
            if os.path.isfile(path):
                tree = [f"{place}/{inner.partition('/')[0]}"] if "__main__" in path or "/" in inner else []
                argv = [python, *flags, "-I", "-m", module]
                return Resolved(
                    argv=argv,
                    replaces=replaces,
                    files=[python, path, *tree],
                    watched=python_startup_files(python),
                    package=f"python:{module}",
                )
    return Unresolved(
        f"the module '{module}' was not found among the packages of {python}",
        "Install it there, or configure the script itself by its absolute path.",
    )


def resolve_script(path: str, replaces: int, search: Search, package: str = "") -> Resolved | Unresolved:
    """Resolve a script by its shebang line: the absolute path of its interpreter, and the script."""
    real = os.path.realpath(path)
    line = _shebang(real)
    if not line:
        return Unresolved(f"{real} has no shebang line")
    words = line.split()
    if program_name(words[0]) == "env":
        words = words[1:]
        if words and words[0] == "-S":
            words = words[1:]
        if not words or words[0].startswith("-") or "=" in words[0]:
            return Unresolved(f"{real}: its shebang line `{line}` cannot be resolved")
    interpreter = search.program(words[0])
    if interpreter is None:
        return Unresolved(f"{real}: its interpreter '{words[0]}' was not found")
    names = {program_name(interpreter), program_name(os.path.realpath(interpreter))}
    if names & SHELLS or not names & set(INTERPRETERS):
        return Unresolved(
            f"{real} is run by {interpreter}; no shell is ever run",
            "Configure the program behind it.",
        )
    name = next(iter(names & set(INTERPRETERS)))
    return _protected(name, [interpreter, *words[1:]], real, replaces, search, package)


def _protected(
    name: str, command: list[str], script: str, replaces: int, search: Search, package: str = ""
) -> Resolved | Unresolved:
    """Resolve an interpreter with flags and its script, so that it loads only what is pinned."""
    packages = _package_of(script)
    surroundings = find_surroundings(name, command[0], script, packages, search.location())
    if isinstance(surroundings, Unprotected):
        return Unresolved(surroundings.why)
    flags = [flag for flag in surroundings.flags if flag not in command]
    return Resolved(
        argv=[*command, *flags, script],
        replaces=replaces,
        files=[command[0], script, *packages, *surroundings.folders],
        watched=surroundings.watched,
        package=package or _package_name(script),
    )


def _shebang(path: str) -> str:
    head = _first_bytes(path) or b""
    if not head.startswith(b"#!"):
        return ""
    line, _, rest = head[2:].partition(b"\n")
    if program_name(line.decode("utf-8", "replace").strip()) == "sh":
        # Python installers write this if the path of the interpreter is too long for a shebang line.
        match = _TRAMPOLINE.match(rest)
        if match is not None:
            return match[1].decode("utf-8", "replace")
        beside = _BESIDE.match(rest)
        if beside is not None:
            return os.path.join(os.path.dirname(path), beside[1].decode())
    return line.decode("utf-8", "replace").strip()


def _first_bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(1024)
    except OSError:
        return None


class Manifest(Struct):
    """The members of `package.json` that are used here."""

    name: str = ""
    version: str = ""
    bin: str | dict[str, str] | None = None


def read_manifest(folder: str) -> Manifest | None:
    """Read the `package.json` of a folder, or return None."""
    try:
        with open(os.path.join(folder, "package.json"), "rb") as file:
            return msgspec.json.decode(file.read(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def _package_of(script: str) -> list[str]:
    """Return the folder of the package that a script belongs to; it is pinned as a whole."""
    before, mark, after = script.rpartition("/node_modules/")
    if mark:
        depth = 2 if after.startswith("@") else 1
        return [f"{before}{mark}{'/'.join(after.split('/')[:depth])}"]
    environment, name = os.path.split(os.path.dirname(script))
    match = _SHIM.search(_first_bytes(script) or b"") if name == "bin" else None
    if match is None:
        return []
    # An entry-point script written by an installer: the code is elsewhere.
    places = glob_in(environment, f"lib/python3*/site-packages/{match[1].decode()}")
    return [place for place in places if os.path.isdir(place)][:1]


def _package_name(script: str) -> str:
    for folder in _package_of(script):
        manifest = read_manifest(folder)
        if manifest is not None and manifest.name:
            return f"npm:{manifest.name}@{manifest.version}"
    return ""
