"""Finds the files that a program needs to run: itself, its interpreter, and the folder of its package.

Reads links, the first line of scripts and `pyvenv.cfg`; runs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

# Programs and libraries of the system. Their files are the same for everybody on it.
SYSTEM_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store",
)  # fmt: skip
LOADERS = (
    "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
)  # fmt: skip
VERSION_MANAGERS = frozenset((".asdf", ".bun", ".deno", ".nodenv", ".proto", ".pyenv", ".volta"))
_MAX_SCRIPT_DEPTH = 4
_MARKS = ("package.json", "pyproject.toml", "node_modules")


class ProgramFiles(Struct, frozen=True):
    """`executables` are run, first the program itself; `read` are the folders and files they need; `package` is the
    folder of the program's own package, or empty.

    `named` are paths of `read` that a virtual environment names: by environment. `own` are the files of the program
    that decide which code runs.
    """

    executables: list[str]
    read: list[str]
    package: str
    named: dict[str, str] = {}
    own: list[str] = []


def find_program(argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ProgramFiles:
    """Return the files that a command line needs. Empty if the program does not exist: its start says so."""
    program = which(argv[0], env.get("PATH", os.defpath), cwd) if argv else ""
    if not program:
        return ProgramFiles([], [], "")
    executables = list(dict.fromkeys(_chain(program, env, cwd)))
    read = [place for path in executables for place in _needed_by(path)]
    scripts = [path for word in argv[1:] if (path := _script(word, cwd))]
    packages = [package_folder(path) for path in (*scripts, *executables[:1])]
    # A program that is itself a script, as npm installs them, needs its package too.
    read += packages if _first_line(program) else packages[: len(scripts)]
    for name in ("PYTHONPATH", "NODE_PATH"):
        read += [path for path in env.get(name, "").split(os.pathsep) if os.path.isabs(path)]
    if "-m" in argv[1:-1]:
        module = argv[list(argv).index("-m") + 1].partition(".")[0]
        read += [path for path in (f"{cwd}/{module}", f"{cwd}/{module}.py") if os.path.exists(path)]
    package = next((path for path in packages if path and not is_system(path)), "")
    environments = [prefix for path in executables if (prefix := _prefix_of(path))]
    named = {path: prefix for prefix in environments for path in _environment(prefix)}
    modules = [path for path in packages if path.endswith("/node_modules")]
    own = [path for path in (*executables, *scripts, *environments, *modules) if not is_system(path)]
    found = list(dict.fromkeys(path for path in read if path))
    return ProgramFiles(executables, found, package, named, list(dict.fromkeys(own)))


def _prefix_of(program: str) -> str:
    """Return the virtual environment of an executable, or an empty string."""
    prefix = os.path.dirname(os.path.dirname(program))
    return prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else ""


def is_python(prefix: str) -> bool:
    """Return True for the folder of a Python: its standard library is there, which no folder of a user has."""
    library = os.path.join(prefix, "lib")
    return any(
        name.startswith("python3") and os.path.isfile(os.path.join(library, name, "os.py"))
        for name in _names(library)
    )


def which(command: str, path: str, cwd: str) -> str:
    """Return the absolute path of a command as `execvp` finds it, links not resolved; or an empty string."""
    if "/" in command:
        places = [os.path.join(cwd, command)]
    else:
        places = [os.path.join(cwd, folder, command) for folder in path.split(os.pathsep) if folder]
    for place in places:
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return os.path.normpath(place)
    return ""


def is_system(path: str) -> bool:
    """Return True if a path is among the programs and libraries of the system."""
    return any(path == folder or path.startswith(folder + "/") for folder in SYSTEM_FOLDERS)


def _chain(program: str, env: Mapping[str, str], cwd: str) -> Iterator[str]:
    """Yield a program and its interpreters, each with the files behind its links."""
    for _ in range(_MAX_SCRIPT_DEPTH):
        yield program
        yield os.path.realpath(program)
        words = _first_line(program)
        if not words:
            return
        yield words[0]
        yield os.path.realpath(words[0])
        program = words[0]
        if os.path.basename(words[0]) == "env":
            names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            program = which(names[0], env.get("PATH", os.defpath), cwd) if names else ""
            if not program:
                return


def _first_line(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    return line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []


def _needed_by(program: str) -> Iterator[str]:
    """Yield the files that an executable needs: itself, its installation, and what its `pyvenv.cfg` names."""
    yield program
    folder = os.path.dirname(program)
    prefix = os.path.dirname(folder)
    if os.path.basename(folder) == "shims" or os.path.basename(prefix) in VERSION_MANAGERS:
        yield prefix  # a shim reads the settings of its version manager, and runs what is installed there
        return
    if os.path.basename(folder) != "bin" or prefix in ("/", _home()) or is_system(prefix):
        return
    if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
        yield prefix
        yield from _environment(prefix)
    elif os.path.isdir(os.path.join(prefix, "lib")) and _is_installation(prefix):
        yield prefix


def _home() -> str:
    return os.path.realpath(os.path.expanduser("~"))


def _is_installation(prefix: str) -> bool:
    """Return True for the folder of a Python or node, and False for one such as ~/.local, which has much else."""
    names = set(_names(prefix))
    return "lib" in names and ("include" in names or os.path.isdir(os.path.join(prefix, "lib/node_modules")))


def _environment(prefix: str) -> Iterator[str]:
    """Yield the folders that a virtual environment refers to: its Python, and sources installed as editable."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            settings = dict(line.partition("=")[::2] for line in file)
    except OSError:
        return
    for name, value in settings.items():
        home = os.path.realpath(value.strip())
        if name.strip() == "home" and os.path.isabs(home) and not is_system(home):
            yield os.path.dirname(home)
    library = os.path.join(prefix, "lib")
    for version in _names(library):
        packages = os.path.join(library, version, "site-packages")
        for name in _names(packages):
            if name.endswith(".pth"):
                yield from _lines_of_paths(os.path.join(packages, name))


def _lines_of_paths(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(65_536).splitlines()
    except OSError:
        return
    yield from (line.strip() for line in lines if os.path.isabs(line.strip()) and os.path.isdir(line.strip()))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _script(word: str, cwd: str) -> str:
    """Return the file that an argument names, if it is one."""
    if not word or word.startswith("-") or "\0" in word:
        return ""
    path = os.path.join(cwd, word)
    return os.path.realpath(path) if os.path.isfile(path) else ""


def package_folder(path: str) -> str:
    """Return the folder of the package that a script belongs to; the script itself if that would be a home or root."""
    path = os.path.realpath(path)
    before, mark, _ = path.partition("/node_modules/")
    if mark:
        return f"{before}/node_modules"
    folder = own = os.path.dirname(path)
    home = _home()
    while folder not in ("/", home) and not is_system(folder):
        if any(os.path.exists(os.path.join(folder, name)) for name in _MARKS):
            return folder
        folder = os.path.dirname(folder)
    return path if own in ("/", home, "/tmp") else own
