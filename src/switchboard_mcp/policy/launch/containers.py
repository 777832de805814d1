"""Checks containers as children: the image must be named by its digest, and every option must be known to be harmless.

Parses the arguments of `run` of docker, podman and nerdctl. A container that gets the machine's root, devices or
network is as powerful as a program, so options are allowed by name and by value, and all others are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

_DIGEST = re.compile(r"[a-z0-9][\w.\-/:]*@sha256:[0-9a-f]{64}")
_FLAGS = frozenset(
    "-i -t -it -ti --interactive --tty --rm --init --read-only --no-healthcheck --quiet -q".split()
)
# Mounting these gives control of the machine: its root, devices, secrets, or the socket of a root daemon.
_OF_THE_MACHINE = re.compile(
    r"//?|/(?:boot|dev|etc|proc|root|run|sys|var/run|var/lib/(?:docker|containers|containerd))(?:/.*)?|"
    r"/(?:bin|home|lib|lib64|opt|sbin|usr|var|var/lib)|.*\.sock"
)
_MOUNT_TYPES = ("bind", "volume", "tmpfs")
_SOURCE = ("source", "src")
_MOUNT_KEYS = frozenset(
    ("type", *_SOURCE, "target", "dst", "destination", "readonly", "ro", "tmpfs-size", "tmpfs-mode")
)
_VOLUME_MODES = frozenset(("ro", "rw", "z", "Z", "nocopy", ""))
_ACCESS = "gives the container access to the machine"


def _matches(pattern: str) -> Callable[[str], str]:
    """Return a check that a value has a form."""
    form = re.compile(pattern)
    return lambda value: "" if form.fullmatch(value) else "has a value that is not known to be safe"


def _volume_flaw(value: str) -> str:
    source, *rest = value.split(":")
    if len(rest) > 2 or (len(rest) == 2 and not _VOLUME_MODES.issuperset(rest[1].split(","))):
        return "has options that are not known to be safe"
    return _source_flaw(source) if rest else ""  # without a colon, it is an anonymous volume


def _mount_flaw(value: str) -> str:
    members = _mount_members(value)
    for key, inner in members:
        if key not in _MOUNT_KEYS:
            return f"has the option `{key}`, which is not known to be safe"
        if key == "type" and inner not in _MOUNT_TYPES:
            return f"has the type {inner}, which is not known to be safe"
    # All sources: if there are two, it is not clear which one counts.
    return next(filter(None, (_source_flaw(inner) for key, inner in members if key in _SOURCE)), "")


def _mount_members(value: str) -> list[tuple[str, str]]:
    members = (member.partition("=") for member in value.replace('"', "").split(","))
    return [(key.strip().lower(), inner.strip()) for key, _, inner in members]


def _source_flaw(source: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*", source):
        return ""  # the name of a volume
    if not source.startswith("/"):
        return f"mounts {source or 'nothing'}; use an absolute path"
    if any(map(_OF_THE_MACHINE.fullmatch, (os.path.normpath(source), os.path.realpath(source)))):
        return f"mounts {source}, a system path of the machine"
    return ""


def _network_flaw(value: str) -> str:
    # `container:`, `ns:`, `name=…,` and the like share the network of something else, or set driver options.
    plain = re.fullmatch(r"[A-Za-z0-9][\w.-]*", value)
    return "" if plain and value != "host" else _ACCESS


# Every option with a value, and the check of its value.
_NUMBER = _matches(r"-?\d+(?:\.\d+)?[bkmgBKMG]?")
_NAME = _matches(r"[A-Za-z0-9][\w.-]*")
_VALUED: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(("-e", "--env"), _matches(r"[A-Za-z_]\w*(?:=.*)?")),
    **dict.fromkeys(("-v", "--volume"), _volume_flaw),
    "--mount": _mount_flaw,
    **dict.fromkeys(("--network", "--net"), _network_flaw),
    **dict.fromkeys(("--name", "-h", "--hostname"), _NAME),
    **dict.fromkeys(("-w", "--workdir"), _matches(r"/[\w./-]*")),
    **dict.fromkeys(("-u", "--user"), _matches(r"[\w.-]+(?::[\w.-]+)?")),
    **dict.fromkeys(("-m", "--memory", "--cpus", "--pids-limit"), _NUMBER),
    "--cap-drop": _NAME,
    "--security-opt": _matches(r"no-new-privileges(?:[:=]true)?"),
    "--tmpfs": _matches(r"/[\w./-]*(?::(?:ro|rw|noexec|nosuid|nodev|size=\w+|mode=\d+|,)*)?"),
    **dict.fromkeys(("-l", "--label"), _matches(r"[A-Za-z0-9][\w./-]*(?:=[\w ./:@-]*)?")),
    "--pull": _matches(r"never|missing|always"),
    "--platform": _matches(r"[\w/.-]+"),
    "--add-host": _matches(r"[\w.-]+[:=](?:[\da-fA-F.:]+|host-gateway)"),
    "--dns": _matches(r"[\da-fA-F.:]+"),
    "--ulimit": _matches(r"\w+=-?\d+(?::-?\d+)?"),
}
_FORBIDDEN = frozenset(
    "--privileged --cap-add --device --pid --ipc --uts --userns --cgroupns --env-file --volumes-from --runtime "
    "--gpus --cgroup-parent --sysctl --group-add --entrypoint --rootfs --oom-score-adj".split()
)


def image_flaw(args: Sequence[str]) -> str:
    """Return why a container cannot be approved, or an empty string."""
    if not args or args[0] != "run":
        return "only `run` can be approved"
    option = ""
    for word in args[1:]:
        name, equals, value = word.partition("=")
        if option or (name in _VALUED and equals):
            option, value = (option, word) if option else (name, value)
            if flaw := _VALUED[option](value):
                return f"`{option} {value}` {flaw}"
            option = ""
        elif not word.startswith("-"):
            return "" if _DIGEST.fullmatch(word) else "the image needs a digest: NAME@sha256:…"
        elif name in _FORBIDDEN:
            return f"`{name}` {_ACCESS}"
        elif name in _VALUED:
            option = name
        elif word not in _FLAGS:
            return f"`{name}` is not known to be safe"
    return "names no image"


def mounted_folders(args: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the paths of the machine that a container gets, with the index of their argument."""
    option = ""
    for index, word in enumerate(args[1:], 1):
        name, equals, value = word.partition("=")
        if option or (name in _VALUED and equals):
            option, value = (option, word) if option else (name, value)
            for source in _sources(option, value):
                if source.startswith("/"):
                    yield index, source
            option = ""
        elif name in _VALUED:
            option = name
        elif not word.startswith("-"):
            return  # the image: what follows is for the program in the container


def _sources(option: str, value: str) -> list[str]:
    if option in ("-v", "--volume"):
        return [value.partition(":")[0]] if ":" in value else []
    return [inner for key, inner in _mount_members(value) if key in _SOURCE] if option == "--mount" else []
