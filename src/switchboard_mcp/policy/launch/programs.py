"""What really runs when a program is named: a binary, an interpreter with its script, or a script of its own.

Owns programs, scripts, what the first line of a script says, and the package a script belongs to. Only looks: nothing
is run to find out. What it cannot follow it refuses, with what would help.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from switchboard_mcp.policy.launch.containers import image_flaw
from switchboard_mcp.policy.launch.text_rules import (
    CONTAINERS,
    INTERPRETERS,
    SHELLS,
    WRAPPERS,
    interpreter_flaw,
    program_name,
)

_TRAMPOLINE = re.compile(rb"""'''exec' "?([^"\n]+?)"? "\$0" "\$@\"""")
# The same with the interpreter beside the script, wherever both are: uv's cache has these.
_BESIDE = re.compile(rb"""'''exec' "\$\(dirname -- "\$\(realpath -- "\$0"\)"\)"/'([\w.-]+)' "\$0" "\$@"\n""")
_SHIM = re.compile(rb"^from ([A-Za-z_]\w*)[\w.]* import ", re.MULTILINE)
_BINARY = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa")
_MODULE_PLACES = ("lib/python3*/site-packages", "lib/python3*", "lib/python3/dist-packages")


class Resolved(Struct, frozen=True, kw_only=True):
    """What really runs: `argv` in place of the command and the first `replaces` arguments."""

    argv: list[str]
    replaces: int = 0
    files: list[str]
    package: str = ""


class Unresolved(Struct, frozen=True):
    """Why that cannot be said."""

    why: str
    hint: str = ""


class Search(Struct, frozen=True):
    """Where to look: the child's folder, and an environment."""

    folder: str
    environ: Mapping[str, str]

    def home(self, *path: str) -> str:
        """A path in the home folder."""
        return os.path.join(self.environ.get("HOME", "/nonexistent"), *path)

    def program(self, name: str) -> str | None:
        """The absolute path of a program."""
        if "/" in name:
            return name if os.path.isfile(name) and os.access(name, os.X_OK) else None
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return os.path.normpath(found) if found and os.path.isabs(found) else None


def program(path: str, args: Sequence[str], search: Search) -> Resolved | Unresolved:
    """A program that lies somewhere: a binary, an interpreter with its script, or a script of its own."""
    names = {program_name(path), program_name(os.path.realpath(path))}
    if names & SHELLS:
        return Unresolved(f"{path} is a shell; no shell is ever run")
    if names & WRAPPERS:
        return Unresolved(f"{path} runs another program", "Name that program itself.")
    head = _head(path)
    if head is None:
        return Unresolved(f"{path} cannot be read")
    if names & set(INTERPRETERS) and not head.startswith(b"#!"):
        return _interpreter(path, args, search)
    if names & set(CONTAINERS):
        problem = image_flaw(args)
        pin = "Write NAME@sha256:… as `docker images --digests` shows it."
        return Unresolved(f"{path}: {problem}", pin) if problem else Resolved(argv=[path], files=[path])
    if head.startswith(b"#!"):
        return script(path, 0, search)
    if head.startswith(_BINARY):
        return Resolved(argv=[path], files=[path])
    return Unresolved(
        f"{path} is neither a program nor a script with a first line that names its interpreter"
    )


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
        return Resolved(
            argv=[path, *flags, file],
            replaces=index + 1,
            files=[path, file, *_package_of(file)],
            package=_package_name(file),
        )
    return Unresolved(f"{name} has no script to run")


def _module(python: str, flags: list[str], module: str, replaces: int) -> Resolved | Unresolved:
    """`python -m`: the file behind the name. Isolated, so that neither folder nor environment stands before it."""
    inner = module.replace(".", "/")
    for place in _library_folders(python):
        for path in (f"{place}/{inner}/__main__.py", f"{place}/{inner}.py"):
            if os.path.isfile(path):
                tree = [f"{place}/{inner.partition('/')[0]}"] if "__main__" in path or "/" in inner else []
                argv = [python, *flags, "-I", "-m", module]
                return Resolved(
                    argv=argv, replaces=replaces, files=[python, path, *tree], package=f"python:{module}"
                )
    return Unresolved(
        f"the module '{module}' was not found among the packages of {python}",
        "Install it there, or configure the script itself by its absolute path.",
    )


def _library_folders(python: str) -> Iterator[str]:
    prefixes = [os.path.dirname(os.path.dirname(python))]
    if not os.path.exists(os.path.join(prefixes[0], "pyvenv.cfg")):
        prefixes += [os.path.dirname(os.path.dirname(os.path.realpath(python))), "/usr/local", "/usr"]
    version = re.search(r"python(\d+\.\d+)", os.path.realpath(python))
    for prefix in dict.fromkeys(prefixes):
        for place in _MODULE_PLACES:
            inner = place.replace("3*", version[1]) if version else place
            yield from matching(prefix, inner)


def script(path: str, replaces: int, search: Search, package: str = "") -> Resolved | Unresolved:
    """A script with a first line: its interpreter, by its absolute path, and the script."""
    real = os.path.realpath(path)
    line = _shebang(real)
    if not line:
        return Unresolved(f"{real} has no first line that names its interpreter")
    words = line.split()
    if program_name(words[0]) == "env":
        words = words[1:]
        if words and words[0] == "-S":
            words = words[1:]
        if not words or words[0].startswith("-") or "=" in words[0]:
            return Unresolved(f"{real}: its first line is `{line}`, which cannot be followed")
    interpreter = search.program(words[0])
    if interpreter is None:
        return Unresolved(f"{real}: its interpreter '{words[0]}' was not found")
    names = {program_name(interpreter), program_name(os.path.realpath(interpreter))}
    if names & (SHELLS | WRAPPERS) or not names & set(INTERPRETERS):
        return Unresolved(
            f"{real} is run by {interpreter}; no shell is ever run",
            "Configure the program behind it.",
        )
    return Resolved(
        argv=[interpreter, *words[1:], real],
        replaces=replaces,
        files=[interpreter, real, *_package_of(real)],
        package=package or _package_name(real),
    )


def _shebang(path: str) -> str:
    head = _head(path) or b""
    if not head.startswith(b"#!"):
        return ""
    line, _, rest = head[2:].partition(b"\n")
    if program_name(line.decode("utf-8", "replace").strip()) == "sh":
        # Python installers write this where the path of the interpreter is too long for the first line.
        found = _TRAMPOLINE.match(rest)
        if found is not None:
            return found[1].decode("utf-8", "replace")
        beside = _BESIDE.match(rest)
        if beside is not None:
            return os.path.join(os.path.dirname(path), beside[1].decode())
    return line.decode("utf-8", "replace").strip()


def _head(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(1024)
    except OSError:
        return None


class Manifest(Struct):
    """What a package says of itself, as far as it matters here."""

    name: str = ""
    version: str = ""
    bin: str | dict[str, str] | None = None


def manifest_of(folder: str) -> Manifest | None:
    try:
        with open(os.path.join(folder, "package.json"), "rb") as file:
            return msgspec.json.decode(file.read(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def _package_of(script: str) -> list[str]:
    """The folder of the package a script belongs to, to be pinned as a whole."""
    before, mark, after = script.rpartition("/node_modules/")
    if mark:
        depth = 2 if after.startswith("@") else 1
        return [f"{before}{mark}{'/'.join(after.split('/')[:depth])}"]
    environment, name = os.path.split(os.path.dirname(script))
    found = _SHIM.search(_head(script) or b"") if name == "bin" else None
    if found is None:
        return []
    # A script that an installer wrote for a Python package: the code is elsewhere.
    places = matching(environment, f"lib/python3*/site-packages/{found[1].decode()}")
    return [place for place in places if os.path.isdir(place)][:1]


def _package_name(script: str) -> str:
    for folder in _package_of(script):
        manifest = manifest_of(folder)
        if manifest is not None and manifest.name:
            return f"npm:{manifest.name}@{manifest.version}"
    return ""


def matching(folder: str, pattern: str) -> list[str]:
    from glob import escape, glob

    return sorted(glob(os.path.join(escape(folder), pattern)))
