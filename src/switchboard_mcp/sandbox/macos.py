"""Writes the profile of a sandbox for macOS (`sandbox-exec`). Pure, and never run by a test on macOS.

The profile language has no public specification; this follows published profiles. Hosts cannot be named in it, so host
rules let nothing out there. Used only if the config names the mechanism `seatbelt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SYSTEM = ("/usr", "/bin", "/sbin", "/System", "/Library", "/opt", "/private/etc", "/private/var/db/timezone")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/dtracehelper")
SERVICES = (
    "com.apple.system.opendirectoryd.libinfo", "com.apple.SecurityServer", "com.apple.trustd.agent",
    "com.apple.system.notification_center", "com.apple.system.logger",
)  # fmt: skip


def macos_profile(
    read: Sequence[str],
    write: Sequence[str],
    protect: Sequence[str],
    network: str,
    *,
    hidden: Sequence[str] = (),
    may_spawn: bool = True,
    programs: Sequence[str] = (),
) -> str:
    """Return the profile. Paths are real ones, such as /private/tmp. The last rule that matches decides."""
    lines = ["(version 1)", "(deny default)", "(allow sysctl-read)", "(allow signal (target same-sandbox))"]
    if may_spawn:
        lines.append("(allow process-fork)")
        lines.append(_rule("allow", "process-exec", (*SYSTEM, *read, *write)))
    else:
        lines.append(_rule("allow", "process-exec", (), literals=programs))
    lines.append(_rule("allow", "file-read*", (*SYSTEM, *read, *write), literals=("/", *DEVICES)))
    lines.append(_rule("allow", "file-write*", write, literals=DEVICES))
    lines.append(_rule("allow", "file-ioctl", (), literals=DEVICES))
    if protect:
        lines.append(_rule("deny", "file-write*", protect))
    if hidden:
        lines.append(_rule("deny", "file-read* file-write*", hidden))
    names = " ".join(f"(global-name {quoted(name)})" for name in SERVICES)
    lines.append(f"(allow mach-lookup {names})")
    if network == "all":
        lines.append("(allow network*)")
    elif network in ("loopback", "hosts"):
        lines.append('(allow network-bind (local ip "localhost:*"))')
        lines.append('(allow network-inbound (local ip "localhost:*"))')
    return "\n".join(line for line in lines if line) + "\n"


def _rule(action: str, operation: str, folders: Iterable[str], literals: Iterable[str] = ()) -> str:
    filters = [f"(subpath {quoted(path)})" for path in folders]
    filters += [f"(literal {quoted(path)})" for path in literals]
    return f"({action} {operation} {' '.join(filters)})" if filters else ""


def quoted(text: str) -> str:
    """Return a text as a string of the profile language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
