"""Turns the effective words of a sandbox into a plan of system calls for `confine`.

Looks at the file system, since mounts and rules need what exists; starts and changes nothing.
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from switchboard_mcp.config.sandbox import (
    BASIC_ENV,
    PROTECTED,
    PROTECTED_NAMES,
    HostRule,
    SandboxWords,
    fill_path,
    parse_host,
)
from switchboard_mcp.sandbox import seccomp
from switchboard_mcp.sandbox.programs import (
    LOADERS,
    SYSTEM_FOLDERS,
    ProgramFiles,
    find_program,
    is_python,
    is_system,
)
from switchboard_mcp.sandbox.promises import Promise, Support, inside, mechanism_of, promises
from switchboard_mcp.system.folder_walk import walk_folders
from switchboard_mcp.system.star_patterns import matches_stars

NEWNS, NEWIPC, NEWUSER, NEWNET = 0x0002_0000, 0x0800_0000, 0x1000_0000, 0x4000_0000
MIB = 1 << 20
TMP = "/tmp"  # of the view
SHARED_MEMORY = "/dev/shm"
# Files of /etc that are often links to a folder that the view does not have.
LINKED_FILES = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/ssl/certs")
# What programs read in /etc: names, certificates, fonts, languages. Never passwords, keys or settings of services.
ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "chromium", "chromium.d", "crypto-policies",
    "debian_version", "fonts", "gai.conf", "gitconfig", "group", "host.conf", "hosts", "inputrc", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "machine-id", "magic", "mime.types",
    "nsswitch.conf", "opt", "os-release", "passwd", "pki", "profile", "protocols", "resolv.conf", "services", "ssl",
    "terminfo", "timezone", "xdg",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
KERNEL_FILES = ("/sys/devices/system/cpu", "/sys/fs/cgroup")
BROWSER_FILES = ("/sys", "/var/cache/fontconfig", "/var/lib/dbus/machine-id")
# Landlock rights by bit.
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, IOCTL_DEV = 1, 2, 4, 8, 1 << 15
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of bits; 16 from 5
READ = READ_FILE | READ_DIR
SCOPES = 0b11  # abstract sockets and signals
# The folders of a server's state that no child sees: mail between agents, terminals, the audit log. What is the child's
# own is in a folder of `CHILD_FOLDERS`, of which it sees its own alone.
HIDDEN = (".switchboard",)
CHILD_FOLDERS = (".switchboard/mcps", "mcps")
# In a child's own folder these say what it is.
OWN_PROTECTED = (*PROTECTED_NAMES, "original")
# Protected files below the top of folders that a child may write; the nearest count.
MAX_NESTED = 256
MAX_WALKED = 1_000  # folders, which take some milliseconds of each start

Mount = tuple[str, str, Any]


class Places(Struct, frozen=True):
    """The folders that variables of the settings stand for. `cache` is the child's own."""

    workspace: str
    home: str
    cache: str


def packages_folder(places: Places) -> str:
    """Return the folder for the package of a package runner: beside the child's own, which it may write."""
    return f"{places.cache}.packages"


class Launch(Struct, frozen=True):
    """A command line with its environment and folder."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


class SandboxPlan(Struct, frozen=True):
    """A launch inside its sandbox: `steps` is for `confine`, `folders` are created first. The paths are real."""

    launch: Launch
    steps: dict[str, Any]
    folders: list[str]
    rules: list[HostRule]
    promises: list[Promise]
    read: list[str]
    write: list[str]
    protect: list[str]
    hidden: list[str] = []
    executables: list[str] = []
    mechanism: str = "linux"
    home: str = ""
    dropped: list[str] = []
    """Listed paths that are links which the child may change, to what it may not use."""
    editable: dict[str, str] = {}
    """Sources of packages that are installed as editable, which it may read only if they are listed: by name."""

    @property
    def broken(self) -> list[Promise]:
        """The promises that do not hold here."""
        return [one for one in self.promises if not one.holds]


def make_plan(
    words: SandboxWords,
    launch: Launch,
    inherited: Iterable[str],
    places: Places,
    support: Support,
    machine: str,
    tools: Sequence[str] = (),
    decisive: Sequence[str] = (),
) -> SandboxPlan:
    """Return the plan for a launch. `inherited` are the names of variables that the child's entry does not set.

    `tools` are files that only the mechanism itself uses, in the view. `decisive` are files that decide what runs, of
    this child and of others.
    """
    held, mechanism = promises(words, support), mechanism_of(words, support)
    support = inside(words, support)
    has_view, has_network = support.mount, support.network and words.network != "all"
    tmp = TMP if has_view else os.path.join(places.cache, "tmp")
    cwd = os.path.realpath(launch.cwd)
    program = find_program(launch.argv, launch.env, launch.cwd, packages_folder(places))
    known = {
        "workspace": os.path.realpath(places.workspace),
        "home": os.path.realpath(places.home) if places.home else "",
        "cache": os.path.realpath(places.cache),
        "tmp": tmp,
        "package": program.package,
    }
    write = _within(_paths(words.write, known), [])
    listed = _within(_paths(words.read, known), write)
    own = _own_folder(cwd, known["workspace"])
    read = [*listed, *_trusted(program, write), *([own] if own and not is_covered(own, write) else [])]
    protect = _protected(words, program, write, known, [*decisive, *_own_files(own)])
    dropped = [path for path in _paths([*words.write, *words.read], known) if path not in (*write, *listed)]
    folders = [path for path in (*write, *([] if tmp == TMP else [tmp])) if _is_below(path, known["cache"])]
    hidden = [os.path.join(known["workspace"], name) for name in HIDDEN]
    hidden = [path for path in hidden if os.path.isdir(path) or _is_writable(path, write)]
    folders += hidden
    env = _environment(words, launch.env, inherited, known)
    rules = [rule for text in words.hosts if isinstance(rule := parse_host(text), HostRule)]
    flags = NEWUSER | NEWIPC if support.user else 0
    flags |= NEWNS if has_view else 0
    flags |= NEWNET if has_network else 0
    is_transparent = has_network and words.network == "hosts" and support.transparent
    families = _families(words, support)
    steps = {
        "namespaces": flags,
        "view": _encoded(_view(words, [*read, *tools], write, protect, hidden, cwd, own, known, support))
        if has_view
        else [],
        "loopback": has_network and words.network != "none",
        "listen": sorted({port for rule in rules for port in rule.ports}) if is_transparent else [],
        "limits": _limits(words, support),
        "landlock": _landlock(words, program, read, write, tmp, support),
        "seccomp": seccomp.assemble(
            machine, families, may_spawn=words.processes is not False, own_sandbox=words.preset == "browser"
        )
        if support.seccomp
        else b"",
    }
    # The program by its path: the view has no other PATH, and what was looked at is what runs.
    argv = [program.executables[0], *launch.argv[1:]] if program.executables else launch.argv
    return SandboxPlan(
        Launch(argv, env, cwd),
        steps,
        folders,
        rules,
        held,
        read,
        write,
        protect,
        hidden,
        program.executables,
        mechanism,
        known["home"],
        dropped,
        {name: path for name, path in program.editable.items() if not is_covered(path, (*read, *write))},
    )


def _paths(paths: Iterable[str], known: Mapping[str, str]) -> list[str]:
    return [path for text in paths if (path := fill_path(text, known))]


def _within(paths: Iterable[str], writable: Sequence[str]) -> list[str]:
    """Return the paths without those that a child could turn to any place: through a link in what it may write."""
    accepted: list[str] = []
    for path in paths:
        roots = [os.path.realpath(root) for root in (*writable, *accepted)]
        real = os.path.realpath(path)
        is_turned = any(_is_writable(place, roots) for place, _ in _links_on(path))
        if not is_turned or any(_is_below(real, root) for root in roots):
            accepted.append(path)
    return accepted


def _is_writable(path: str, roots: Iterable[str]) -> bool:
    return any(path != root and _is_below(path, root) for root in roots)


def _trusted(program: ProgramFiles, writable: Sequence[str]) -> list[str]:
    """Return the files of a program without those that a child could have named in an environment that it may write."""
    return [
        path
        for path in program.read
        if path not in program.named
        or not _is_writable(program.named[path], writable)
        or is_system(path)
        or any(_is_below(os.path.realpath(path), root) for root in writable)
        or is_python(path)
    ]


def _own_programs(program: ProgramFiles, writable: Sequence[str]) -> list[str]:
    """Return what decides which code runs for the child and for Switchboard, within what the child may write."""
    own = (*program.own, sys.prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [path for path in dict.fromkeys(own) if _is_writable(os.path.realpath(path), writable)]


def _own_folder(cwd: str, workspace: str) -> str:
    """Return the folder of a child that runs in it, `mcps/NAME`; empty for others."""
    for name in CHILD_FOLDERS:
        above = f"{workspace}/{name}/"
        if cwd.startswith(above):
            return above + cwd[len(above) :].partition("/")[0]
    return ""


def _own_files(own: str) -> list[str]:
    """Return the files in a child's own folder that say what it is; those that exist."""
    return [path for name in OWN_PROTECTED if own and os.path.lexists(path := f"{own}/{name}")]


def _protected(
    words: SandboxWords,
    program: ProgramFiles,
    write: Sequence[str],
    known: Mapping[str, str],
    decisive: Iterable[str],
) -> list[str]:
    """Return what stays read-only within what the child may write: links, and the files behind them."""
    protect = [path for path in _paths(words.protect, known) if os.path.lexists(path)]
    if not words.protect:
        return protect
    roots = [os.path.realpath(path) for path in write]
    if words.protect == list(PROTECTED):
        protect += _nested([path for path in roots if not _is_below(path, known["cache"])])
    protect += [
        path for path in decisive if _is_writable(path, roots) or _is_writable(os.path.realpath(path), roots)
    ]
    return list(dict.fromkeys((*protect, *_own_programs(program, write))))


def _nested(roots: Iterable[str]) -> Iterator[str]:
    """Yield files that other programs obey in folders, the nearest first."""
    names, left = frozenset(PROTECTED_NAMES), MAX_NESTED
    for root in roots:
        for folder, entries in walk_folders(root, MAX_WALKED):
            for name in sorted(names.intersection(entries)):
                if left > 0:
                    left -= 1
                    yield f"{folder}/{name}"


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _is_any_below(path: str, folders: Sequence[str]) -> bool:
    return any(_is_below(place, folder) for place in (path, os.path.realpath(path)) for folder in folders)


def _encoded(mounts: Iterable[Mount]) -> list[tuple[str, bytes, object]]:
    return [
        (kind, _bytes(path), _bytes(argument) if isinstance(argument, str) else argument)
        for kind, path, argument in mounts
    ]


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")  # as `os.fsencode`, which takes four times as long


def _environment(
    words: SandboxWords, env: Mapping[str, str], inherited: Iterable[str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the child's variables: its own, those it may inherit, and its home and temporary folder."""
    names = BASIC_ENV if words.env is None else words.env
    patterns = [name.split("*") for name in names if "*" in name]
    dropped = {
        name
        for name in inherited
        if name not in names and not any(matches_stars(name, parts) for parts in patterns)
    }
    kept = {name: value for name, value in env.items() if name not in dropped}
    if words.home == "private":
        keeps = any(_is_below(known["cache"], path) for path in _paths(words.write, known))
        kept["HOME"] = known["cache"] if keeps else known["tmp"]
    return kept | {"TMPDIR": known["tmp"]}


def _families(words: SandboxWords, support: Support) -> tuple[int, ...]:
    families = [seccomp.AF_NETLINK]
    # Without a view of its own, a path leads to any socket of the user: the broker's, Docker's, an agent's.
    if support.mount or words.preset == "browser":
        families.append(seccomp.AF_UNIX)
    if support.network or words.network != "none":
        families += [seccomp.AF_INET, seccomp.AF_INET6]
    return tuple(families)


def _limits(words: SandboxWords, support: Support) -> list[tuple[int, int]]:
    limits = words.limits
    found = [(resource.RLIMIT_CORE, 0)]
    # Not RLIMIT_AS: V8 and WebAssembly reserve address space that they never use.
    for name, number, unit in (
        ("memoryMb", resource.RLIMIT_DATA, MIB),
        ("cpuSeconds", resource.RLIMIT_CPU, 1),
        ("openFiles", resource.RLIMIT_NOFILE, 1),
        ("fileSizeMb", resource.RLIMIT_FSIZE, MIB),
    ):
        if name in limits:
            found.append((number, limits[name] * unit))
    # Counted per user namespace: without one of its own, all processes of the user would count.
    if support.user and "processes" in limits:
        found.append((resource.RLIMIT_NPROC, limits["processes"]))
    return found


def _landlock(
    words: SandboxWords,
    program: ProgramFiles,
    read: Sequence[str],
    write: Sequence[str],
    tmp: str,
    support: Support,
) -> tuple[bytes, list[tuple[bytes, int]]] | None:
    abi = support.landlock
    if not abi:
        return None
    handled = (1 << RIGHTS_BY_ABI.get(abi, 16)) - 1
    attributes = struct.pack("QQQ", handled, 0, SCOPES if abi >= 6 else 0)[
        : 8 if abi < 4 else 16 if abi < 6 else 24
    ]
    run = EXECUTE if words.processes is True else 0
    change = handled & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV) & ~(EXECUTE ^ run)
    folders, files = _system_files()
    rules: list[tuple[str, int]] = [(path, READ | run) for path in (*folders, *read)]
    rules += files
    # Without a view, /dev/pts has the terminals of all programs of the user.
    devices = (*DEVICES, "ptmx", "pts") if support.mount else DEVICES
    rules += [
        (f"/dev/{name}", (READ if name == "pts" else READ_FILE) | WRITE_FILE | IOCTL_DEV) for name in devices
    ]
    rules += [("/proc", READ)]
    if words.preset == "browser":
        rules += [(path, READ) for path in BROWSER_FILES]
        rules += [("/proc", READ | WRITE_FILE)]
    rules += [(SHARED_MEMORY, change)] if support.mount else []
    rules += [(path, change) for path in (tmp, *write)]
    if not run:
        named = words.processes if isinstance(words.processes, list) else []
        rules += [(path, READ_FILE | EXECUTE) for path in (*LOADERS, *program.executables, *_named(named))]
    return attributes, [(_bytes(path), rights) for path, rights in rules]


@cache
def _system_files() -> tuple[list[str], list[tuple[str, int]]]:
    """Return the real folders of programs, and the files of the system that are read, with rights; those that exist."""
    real = sorted({os.path.realpath(path) for path in SYSTEM_FOLDERS if os.path.exists(path)})
    folders = [path for path in real if not any(parent in real for parent in _parents(path))]
    files = (*(f"/etc/{name}" for name in ETC), *KERNEL_FILES)
    return folders, [
        (path, READ if os.path.isdir(path) else READ_FILE) for path in files if os.path.exists(path)
    ]


def _named(programs: Iterable[str]) -> Iterator[str]:
    """Yield the files of programs by name or path."""
    for name in programs:
        folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                yield from (path, os.path.realpath(path))


# The view


class _View:
    """Collects the mounts of the new root folder, and the links that lead to them."""

    def __init__(self) -> None:
        self.mounts: dict[str, Mount] = {}
        self.links: dict[str, str] = {}

    def show(self, path: str, kind: str, *, created: bool = False) -> None:
        """Add a path, with the links that lead to it."""
        self.links.update(_links_on(path))
        real = os.path.realpath(path)
        if real in ("/", TMP) or not (created or os.path.exists(real)):
            return
        if self.mounts.get(real, ("ro",))[0] in ("ro", "dir"):
            self.mounts[real] = (kind, real, None)

    def put(self, kind: str, path: str, argument: object = None) -> None:
        """Add a mount as it is."""
        self.mounts[path] = (kind, path, argument)

    def protect(self, paths: Iterable[str], roots: Sequence[str]) -> None:
        """Make paths read-only that are in folders to be written: the files, and the links that lead to them."""
        for path in paths:
            real = os.path.realpath(path)
            for kind, place in (("ro", real), *(("kept", link) for link, _ in _links_on(path))):
                above = [root for root in roots if _is_writable(place, [root])]
                if above and os.path.lexists(place):
                    self.put(kind, place)
                    self.pin_parents(place, max(above, key=len))

    def pin_parents(self, path: str, root: str) -> None:
        """Mount the folders between a path and its root: mounts cannot be renamed, and the path with them."""
        for parent in _parents(path):
            if not _is_below(parent, root) or parent == root:
                return
            self.mounts.setdefault(parent, ("pin", parent, None))

    def sorted(self) -> list[Mount]:
        """Return the mounts, parents first."""
        # Nothing may be put below a link: it leads out of the folder in which the view is built.
        taken = {place for path in self.mounts for place in (path, *_parents(path))}
        links = [("link", path, target) for path, target in self.links.items() if path not in taken]
        return list(_without_repeats([*self.mounts.values(), *links]))


def _view(
    words: SandboxWords,
    read: Iterable[str],
    write: Sequence[str],
    protect: Iterable[str],
    hidden: Iterable[str],
    cwd: str,
    own: str,
    known: Mapping[str, str],
    support: Support,
) -> list[Mount]:
    """Return the mounts of the new root folder, parents first."""
    view = _View()
    view.put("dir", cwd)
    _show_system(view, words, support)
    for path in read:
        view.show(path, "ro")
    for path in write:
        view.show(path, "rw", created=_is_below(path, known["cache"]))
    for path in hidden:
        if path not in view.mounts:
            view.put("empty", path, own[len(path) :] if own and _is_below(own, path) else None)
    roots = [os.path.realpath(path) for path in write]
    ours = [path for path in protect if own and _is_below(os.path.realpath(path), own)]
    hidden_ones = [path for path, mount in view.mounts.items() if mount[0] == "empty"]
    others = [path for path in protect if path not in ours]
    view.protect([path for path in others if not _is_any_below(path, hidden_ones)], roots)
    if own:
        is_writable = _is_writable(own, roots)
        view.put("rw" if is_writable else "ro", own)
        view.protect(ours, [own] if is_writable else [])
    return view.sorted()


def _show_system(view: _View, words: SandboxWords, support: Support) -> None:
    """Show programs, libraries and devices, and new temporary folders."""
    is_browser = words.preset == "browser"
    system = _system(is_browser, bool(support.landlock))
    view.mounts.update(system.mounts)
    view.links.update(system.links)
    # A browser's own sandbox writes its uid map; a view of root shows no writable /proc.
    view.show("/proc", "rw" if is_browser and not support.is_root else "ro")
    for path in (TMP, SHARED_MEMORY):
        view.put("tmp", path, words.limits.get("tmpMb", 64) * MIB)
    for path in LINKED_FILES:
        real = os.path.realpath(path)
        if not _is_below(real, "/etc"):
            view.show(real, "ro")


@cache
def _system(is_browser: bool, has_landlock: bool) -> _View:
    """Return the part of a view that changes with the system only. Looked at once: it takes a millisecond."""
    view = _View()
    # Landlock picks the files of /etc, which is quicker than a mount for each.
    etc = ["/etc"] if has_landlock else [f"/etc/{name}" for name in ETC]
    for path in (*SYSTEM_FOLDERS, *etc, *KERNEL_FILES, *(BROWSER_FILES if is_browser else ())):
        view.show(path, "ro")
    view.put("pts", "/dev/pts")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            view.put("dev", f"/dev/{name}")
    streams = enumerate(("stdin", "stdout", "stderr"))
    view.links |= {f"/dev/{name}": f"/proc/self/fd/{number}" for number, name in streams}
    view.links |= {"/dev/fd": "/proc/self/fd", "/dev/ptmx": "pts/ptmx", "/var/tmp": TMP, "/var/run": "/run"}
    view.put("dir", "/run")
    return view


def _links_on(path: str) -> Iterator[tuple[str, str]]:
    """Yield each symbolic link on the way to a path, with its target."""
    for _ in range(40):  # as many as the kernel follows
        parts = os.path.normpath(path).split("/")
        for end in range(2, len(parts) + 1):
            place = "/".join(parts[:end])
            if os.path.islink(place):
                target = os.readlink(place)
                yield place, target
                path = os.path.normpath(os.path.join(os.path.dirname(place), target, *parts[end:]))
                break
        else:
            return


def _without_repeats(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """Yield the mounts that a parent does not show already. Links are needed only where no mount has them."""
    shown: dict[str, str] = {}
    for mount in sorted(mounts, key=lambda mount: mount[1]):
        kind, path, _ = mount
        above = next((shown[parent] for parent in _parents(path) if parent in shown), "")
        if kind == above and kind in ("ro", "rw"):
            continue
        if kind == "link" and above in ("ro", "rw", "pin"):
            continue
        if kind in ("pin", "kept") and above == "ro":
            continue
        if kind not in ("link", "dir", "kept"):
            shown[path] = kind
        yield mount


def _parents(path: str) -> Iterator[str]:
    while len(path) > 1:
        path = path[: path.rindex("/")] or "/"
        yield path


def is_covered(path: str, folders: Iterable[str]) -> bool:
    """Return True if a path is one of these or below one; the system's folders count for reading."""
    return is_system(path) or any(_is_below(path, folder) for folder in folders)
