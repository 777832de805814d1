"""The promises of a sandbox, and which of them hold on a system. Pure.

`required` compares promise by promise, not mechanism by mechanism: several mechanisms may keep one promise.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, structs

from switchboard_mcp.config.sandbox import Mechanism, SandboxWords

NO_NAMESPACES = "this system allows no user namespaces here"


class Support(Struct, frozen=True):
    """What a system offers, as `confine.probe` found it. `landlock` is the version of its interface, 0 if none."""

    landlock: int = 0
    seccomp: bool = False
    user: bool = False
    mount: bool = False
    network: bool = False
    transparent: bool = False
    is_root: bool = False
    system: str = "linux"
    pids: bool = False
    """True if the child sees its own processes only."""
    programs: dict[str, str] = {}
    """The programs of other mechanisms that are installed."""
    bubblewrap: Support | None = None
    """What is there inside bubblewrap, if it was tried and works."""

    @classmethod
    def of(
        cls, found: Mapping[str, int], *, is_root: bool, programs: Mapping[str, str] | None = None
    ) -> Support:
        """Return the support that a probe reported."""
        support = cls(landlock=found.get("landlock", 0), is_root=is_root, programs=dict(programs or {}))
        names = ("seccomp", "user", "mount", "network", "transparent")
        return structs.replace(support, **{name: bool(found.get(name)) for name in names})


class Promise(Struct, frozen=True):
    """One promise: its name, the mechanism that keeps it, or the reason why it does not hold."""

    name: str
    text: str
    by: str = ""
    why: str = ""

    @property
    def holds(self) -> bool:
        """True if it holds here."""
        return not self.why


def mechanism_of(words: SandboxWords, support: Support) -> Mechanism:
    """Return the mechanism that makes a sandbox here."""
    if words.mechanism != "auto":
        return words.mechanism
    needs_other = not support.mount and support.system == "linux"
    return "bubblewrap" if needs_other and support.bubblewrap is not None else "linux"


def inside(words: SandboxWords, support: Support) -> Support:
    """Return what there is for the steps that Switchboard makes itself: inside bubblewrap, or on this system."""
    if mechanism_of(words, support) == "bubblewrap" and support.bubblewrap is not None:
        return support.bubblewrap
    return support


def unusable(words: SandboxWords, support: Support) -> str:
    """Return the reason why the mechanism that the words name does not work here; empty for `auto`."""
    name = words.mechanism
    if name == "linux" and support.system != "linux":
        return f"the mechanism `linux` does not exist on {support.system}"
    if name == "bubblewrap" and support.bubblewrap is None:
        is_there = "bubblewrap" in support.programs
        return "`bwrap` does not work here" if is_there else "`bwrap` is not installed"
    return ""


def promises(words: SandboxWords, support: Support) -> list[Promise]:
    """Return every promise that these words make, with what keeps it here."""
    if not words.is_on:
        return []
    own = inside(words, support)
    found = [
        _files(own),
        _attributes(own),
        _unix(words, own),
        _others(own),
        _calls(own),
        _privileges(own),
    ]
    if words.protect:
        found.insert(2, _protect(own))
    if words.network != "all":
        found.append(_network(words, own))
    if words.processes is not True:
        found.append(_processes(words, own))
    found.append(_limits(words, own))
    why = unusable(words, support)
    if not why and support.system != "linux":
        why = f"sandboxes are not applied on {support.system}"
    if why:
        return [Promise(promise.name, promise.text, why=why) for promise in found]
    return found


def _files(support: Support) -> Promise:
    text = "reads and writes only the listed files"
    holders = (("mounts",) if support.mount else ()) + (
        (f"Landlock {support.landlock}",) if support.landlock else ()
    )
    if support.landlock and support.landlock < 3 and not support.mount:
        return Promise("files", text, why=f"Landlock {support.landlock} lets files be truncated; 3 is needed")
    if not holders:
        return Promise("files", text, why=f"no Landlock, and {NO_NAMESPACES}")
    return Promise("files", text, by=" and ".join(holders))


def _attributes(support: Support) -> Promise:
    text = "sees no other files and changes none of their attributes"
    if support.mount:
        return Promise("attributes", text, by="mounts")
    return Promise(
        "attributes", text, why=f"names, dates and modes are open: it needs mounts, and {NO_NAMESPACES}"
    )


def _protect(support: Support) -> Promise:
    text = "cannot change protected files in what it may write"
    if support.mount:
        return Promise("protect", text, by="mounts")
    return Promise("protect", text, why=f"it needs mounts, and {NO_NAMESPACES}")


def _unix(words: SandboxWords, support: Support) -> Promise:
    text = "reaches no socket of another program by path or name"
    names_apart = support.landlock >= 6 or (support.network and words.network != "all")
    if support.mount and names_apart:
        return Promise("sockets", text, by="mounts")
    if support.mount:
        return Promise("sockets", text, why="sockets without a path are open: Landlock 6 is needed")
    if support.seccomp and words.preset != "browser":
        return Promise("sockets", text, by="seccomp")
    return Promise("sockets", text, why=f"it needs mounts, and {NO_NAMESPACES}")


def _others(support: Support) -> Promise:
    text = "cannot signal, trace or read other processes"
    if support.pids and support.seccomp:
        return Promise("others", text, by="process namespace")
    if support.landlock >= 6 and support.seccomp:
        return Promise("others", text, by=f"Landlock {support.landlock} and seccomp")
    missing = "Landlock 6 is needed" if support.landlock < 6 else "seccomp is needed"
    return Promise("others", text, why=f"signals are open: {missing}")


def _calls(support: Support) -> Promise:
    text = "cannot mount, load code into the kernel, or use io_uring, keys and BPF"
    if support.seccomp:
        return Promise("calls", text, by="seccomp")
    return Promise("calls", text, why="this system allows no seccomp filter here")


def _privileges(support: Support) -> Promise:
    text = "has no privileges and cannot gain any"
    return Promise("privileges", text, by="no_new_privs")


def _network(words: SandboxWords, support: Support) -> Promise:
    if words.network == "none":
        text = "has no network"
        if support.network:
            return Promise("network", text, by="network namespace")
        if support.seccomp:
            return Promise("network", text, by="seccomp")
        return Promise("network", text, why=f"no seccomp, and {NO_NAMESPACES}")
    text = "has a loopback of its own only"
    if words.network == "hosts":
        text = "reaches only the listed hosts"
        held = support.network and support.transparent
    else:
        held = support.network
    if held:
        return Promise("network", text, by="network namespace")
    return Promise("network", text, why=f"{NO_NAMESPACES}, so its network is open")


def _processes(words: SandboxWords, support: Support) -> Promise:
    if words.processes is False:
        text = "starts no other program"
        if support.seccomp:
            return Promise("processes", text, by="seccomp")
        return Promise("processes", text, why="this system allows no seccomp filter here")
    text = "starts only the listed programs"
    if support.landlock:
        return Promise("processes", text, by=f"Landlock {support.landlock}")
    return Promise("processes", text, why="this system has no Landlock")


def _limits(words: SandboxWords, support: Support) -> Promise:
    text = "stays within its limits"
    if not support.user:
        return Promise("limits", text, why=f"the number of processes is not limited: {NO_NAMESPACES}")
    if support.is_root:
        return Promise("limits", text, why="the number of processes of root is not limited")
    return Promise("limits", text, by="rlimits")
