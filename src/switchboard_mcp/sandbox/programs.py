"""Finds the files that a program needs to run: itself, its interpreter, and the folder of its package.

Reads links, the first line of scripts and `pyvenv.cfg`; runs nothing. What a package contains (`.pth` files, the first
lines of its scripts, its links) opens no folder: only programs and interpreters that are installed do. Sources of
editable installs are found, for a person to allow.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote, urlsplit

import msgspec
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
# Folders in which packages have their programs. A mark above another folder does not make the program a part of it.
_CODE_FOLDERS = frozenset(
    ("app", "bin", "build", "cjs", "cli", "dist", "esm", "lib", "libexec", "out", "scripts", "server", "src")
)
_INTERPRETER = re.compile(
    r"(python|pypy|node|nodejs|bun|deno|ruby|perl|php|lua|luajit|java|dotnet|pwsh|tclsh|Rscript|guile|escript|elixir|uv"
    r"|env|sh|bash|dash|zsh|ksh|ash|fish|busybox)[\d.t-]*"
)
# Options of interpreters: followed by a file that is run, by a value, or by all that is run.
_CODE_OPTIONS = frozenset(
    ("-r", "--require", "--import", "--loader", "--experimental-loader", "--preload", "-jar", "--script")
)
_VALUE_OPTIONS = {
    "python": ("-X", "-W"), "pypy": ("-X", "-W"), "ruby": ("-I", "-C"), "perl": ("-I",), "java": ("-cp", "-classpath"),
    "uv": ("--directory", "--extra", "--project", "--python", "--with", "-p"),
    "node": ("-C", "--conditions", "--env-file"), "bun": ("--cwd",), "deno": ("--config", "-c"),
}  # fmt: skip
_NO_SCRIPT = frozenset(("-c", "-e", "--eval", "-m", "--print", "--module"))
_VERBS = frozenset(("run", "exec"))
_OWN_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class ProgramFiles(Struct, frozen=True):
    """`executables` are run, first the program itself; `read` are the folders and files they need; `package` is the
    folder of the program's own package, or empty.

    `named` are paths of `read` that a virtual environment names: by environment. `own` are the files of the program
    that decide which code runs. `editable` are the sources of packages that an installer wrote as editable, by name:
    they are not in `read`.
    """

    executables: list[str]
    read: list[str]
    package: str
    named: dict[str, str] = {}
    own: list[str] = []
    editable: dict[str, str] = {}


class _DirectUrl(Struct):
    """The file `direct_url.json`, in which an installer says where a package comes from."""

    class _Folder(Struct, frozen=True):
        editable: bool = False

    url: str
    dir_info: _Folder = _Folder()


def find_program(argv: Sequence[str], env: Mapping[str, str], cwd: str, installed: str = "") -> ProgramFiles:
    """Return the files that a command line needs. Empty if the program does not exist: its start says so.

    `installed` is a folder whose content a package has written: its links lead to interpreters only.
    """
    program = which(argv[0], env.get("PATH", os.defpath), cwd) if argv else ""
    if not program:
        return ProgramFiles([], [], "")
    executables = list(dict.fromkeys(_chain(program, env, cwd, installed)))
    read = [place for path in executables for place in _needed_by(path)]
    scripts = list(_scripts(argv, cwd))
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
    if any(os.path.realpath(prefix) == os.path.realpath(sys.prefix) for prefix in environments):
        read.append(_OWN_SOURCE)  # children that run Switchboard itself, also as it is developed
    named = {path: prefix for prefix in environments for path in _base_of(prefix)}
    modules = [path for path in packages if path.endswith("/node_modules")]
    own = [path for path in (*executables, *scripts, *environments, *modules) if not is_system(path)]
    found = list(dict.fromkeys(path for path in read if path))
    editable = {name: path for name, path in _editable(environments) if path != _OWN_SOURCE}
    return ProgramFiles(executables, found, package, named, list(dict.fromkeys(own)), editable)


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


def _chain(program: str, env: Mapping[str, str], cwd: str, installed: str) -> Iterator[str]:
    """Yield a program and its interpreters, each with the files behind its links."""
    for _ in range(_MAX_SCRIPT_DEPTH):
        yield program
        real = os.path.realpath(program)
        leaves = installed and _is_below(program, installed) and not _is_below(real, installed)
        if leaves and not is_interpreter(real):
            return
        yield real
        words = _first_line(program)
        if not words or not is_interpreter(words[0]):
            return
        yield words[0]
        yield os.path.realpath(words[0])
        program = words[0]
        if os.path.basename(words[0]) == "env":
            names = list(_inner_words(words[1:]))
            program = which(names[0], env.get("PATH", os.defpath), cwd) if names else ""
            if not program or not is_interpreter(program):
                return


def is_interpreter(path: str) -> bool:
    """Return True for an installed interpreter: of the system, or a program that has the name of one."""
    real = os.path.realpath(path)
    if not os.path.isabs(path) or not os.path.isfile(real) or not os.access(real, os.X_OK):
        return False
    return is_system(real) or all(_INTERPRETER.fullmatch(os.path.basename(one)) for one in (path, real))


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _inner_words(words: Sequence[str]) -> Iterator[str]:
    """Yield the command line in the arguments of `env`."""
    rest = iter(words)
    for word in rest:
        if word in ("-u", "--unset", "-C", "--chdir"):
            next(rest, "")
        elif not word.startswith("-") and "=" not in word:
            yield word
            yield from rest


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
    shared = ("/", _home(), os.path.join(_home(), ".local"))
    if os.path.basename(folder) != "bin" or prefix in shared or is_system(prefix) or contains_home(prefix):
        return
    if os.path.exists(os.path.join(prefix, "pyvenv.cfg")):
        yield prefix
        yield from _base_of(prefix)
    elif os.path.isdir(os.path.join(prefix, "lib")) and _is_installation(prefix):
        yield prefix


def _home() -> str:
    return os.path.realpath(os.path.expanduser("~"))


def contains_home(folder: str) -> bool:
    """Return True for the home folder of this user and the folders above it."""
    return _is_below(_home(), os.path.realpath(folder).rstrip("/"))


def _is_installation(prefix: str) -> bool:
    """Return True for the folder of a Python or node, and False for one such as ~/.local, which has much else."""
    names = set(_names(prefix))
    return "lib" in names and ("include" in names or os.path.isdir(os.path.join(prefix, "lib/node_modules")))


def _base_of(prefix: str) -> Iterator[str]:
    """Yield the folder of the Python that a virtual environment is made of, if there is one at the place it names."""
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            settings = dict(line.partition("=")[::2] for line in file)
    except OSError:
        return
    for name, value in settings.items():
        base = os.path.dirname(os.path.realpath(value.strip()))
        if (
            name.strip() == "home"
            and os.path.isabs(value.strip())
            and is_python(base)
            and not is_system(base)
        ):
            yield base


def _editable(environments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield name and source of the packages that an installer wrote as editable into environments."""
    for prefix in environments:
        library = os.path.join(prefix, "lib")
        for version in _names(library):
            packages = os.path.join(library, version, "site-packages")
            for name in _names(packages):
                if name.endswith(".dist-info") and (source := _source_of(os.path.join(packages, name))):
                    yield name.partition("-")[0], source


def _source_of(metadata: str) -> str:
    try:
        with open(os.path.join(metadata, "direct_url.json"), "rb") as file:
            origin = msgspec.json.decode(file.read(65_536), type=_DirectUrl)
    except (OSError, msgspec.MsgspecError):
        return ""
    parts = urlsplit(origin.url)
    path = unquote(parts.path)
    return path if origin.dir_info.editable and parts.scheme == "file" and os.path.isdir(path) else ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _scripts(argv: Sequence[str], cwd: str) -> Iterator[str]:
    """Yield the files that an interpreter is told to run. Other arguments name what a program works with."""
    name = os.path.basename(argv[0])
    if name == "env":
        inner = list(_inner_words(argv[1:]))
        if inner:
            yield from _scripts(inner, cwd)
        return
    if not _INTERPRETER.fullmatch(name):
        return
    with_value = _VALUE_OPTIONS.get(name.rstrip("0123456789.t"), ())
    words = iter(argv[1:])
    for word in words:
        if word in _NO_SCRIPT and word not in with_value:
            return
        if word in _CODE_OPTIONS:
            yield from _file(next(words, ""), cwd)
            if word == "-jar":
                return
        elif word in with_value:
            next(words, "")
        elif not word.startswith("-") and word not in _VERBS:
            yield from _file(word, cwd)
            return


def _file(word: str, cwd: str) -> Iterator[str]:
    path = os.path.join(cwd, word)
    if word and "\0" not in word and os.path.isfile(path):
        yield os.path.realpath(path)


def package_folder(path: str) -> str:
    """Return the folder of the package that a script belongs to; the script itself if that has files of others."""
    path = os.path.realpath(path)
    before, mark, _ = path.partition("/node_modules/")
    if mark:
        return f"{before}/node_modules"
    folder = own = os.path.dirname(path)
    if own == "/tmp" or contains_home(own):
        return path
    while os.path.basename(folder) in _CODE_FOLDERS and not is_system(folder):
        folder = os.path.dirname(folder)
        if contains_home(folder):
            break
        if any(os.path.exists(os.path.join(folder, name)) for name in _MARKS):
            return folder
    return own
