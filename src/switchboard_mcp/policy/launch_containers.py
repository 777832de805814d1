"""Containers as children: what really runs is the image, so the image is named by its digest.

Owns how the arguments of `docker run` are read. Whether the runtime can be trusted is not known here: a container that
is given the machine's root or its devices is as strong as a program, and the approval shows every argument.
"""

from __future__ import annotations

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
_FORBIDDEN = frozenset(
    "--privileged --cap-add --device --pid --ipc --uts --userns --cgroupns --env-file".split()
)


def image_flaw(args: Sequence[str]) -> str:
    """Why a container cannot be approved as it is written, or an empty string."""
    if not args or args[0] != "run":
        return "only `run` can be approved"
    skip = False
    for word in args[1:]:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif not word.startswith("-"):
            return "" if _DIGEST.fullmatch(word) else "the image needs its digest: NAME@sha256:…"
        elif name in _FORBIDDEN:
            return f"`{name}` opens the machine to the container"
        elif name in _VALUED:
            skip = not equals
        elif word not in _FLAGS:
            return f"`{name}` is not known to be harmless"
    return "names no image"
