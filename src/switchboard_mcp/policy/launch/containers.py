"""Checks containers as children: the image must be named by its digest, and the flags must be harmless.

Parses the arguments of `docker run`. A container that gets the machine's root or devices is as powerful as a program,
so such flags are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_DIGEST = re.compile(r"[a-z0-9][\w.\-/:]*@sha256:[0-9a-f]{64}")
_FLAGS = frozenset(
    "-i -t -it -ti --interactive --tty --rm --init --read-only --no-healthcheck --quiet -q".split()
)
_VALUED = frozenset(
    "-e --env -v --volume --mount --network --net --name -w --workdir -u --user -m --memory --cpus --cap-drop "
    "--security-opt --tmpfs -l --label --pull --platform --add-host --dns --pids-limit --ulimit --hostname -h".split()
)
# Mounting these gives control of the machine: its root, devices, secrets, or the socket of a root daemon.
_OF_THE_MACHINE = re.compile(
    r"//?|/(?:boot|dev|etc|proc|root|run|sys|var/run|var/lib/docker)(?:/.*)?|"
    r"/(?:bin|home|lib|lib64|opt|sbin|usr|var|var/lib)|.*\.sock"
)
_FORBIDDEN = frozenset(
    "--privileged --cap-add --device --pid --ipc --uts --userns --cgroupns --env-file".split()
)


def image_flaw(args: Sequence[str]) -> str:
    """Return why a container cannot be approved, or an empty string."""
    if not args or args[0] != "run":
        return "only `run` can be approved"
    valued = ""
    for word in args[1:]:
        name, equals, value = word.partition("=")
        if valued or (name in _VALUED and equals):
            flaw = _value_flaw(valued or name, word if valued else value)
            if flaw:
                return flaw
            valued = ""
        elif not word.startswith("-"):
            return "" if _DIGEST.fullmatch(word) else "the image needs a digest: NAME@sha256:…"
        elif name in _FORBIDDEN:
            return f"`{name}` gives the container access to the machine"
        elif name in _VALUED:
            valued = name
        elif word not in _FLAGS:
            return f"`{name}` is not known to be safe"
    return "names no image"


def _value_flaw(name: str, value: str) -> str:
    """Return why a flag with this value gives control of the machine, or an empty string."""
    if name in ("-v", "--volume"):
        sources = [value.partition(":")[0]]
    elif name == "--mount":
        # All of them, in any spelling: if there are two, it is not clear which one counts.
        members = (member.partition("=") for member in value.replace('"', "").split(","))
        sources = [value.strip() for key, _, value in members if key.strip().lower() in ("source", "src")]
    else:
        opens = name in ("--network", "--net") and "host" in re.split("[,=]", value)
        opens = opens or (name == "--security-opt" and value.endswith(("unconfined", "disable")))
        return f"`{name} {value}` gives the container access to the machine" if opens else ""
    for source in sources:
        if source.startswith("."):
            return f"`{name}` mounts {source}; use an absolute path"
        if source.startswith("/") and _OF_THE_MACHINE.fullmatch(os.path.normpath(source)):
            return f"`{name}` mounts {source}, a system path of the machine"
    return ""
