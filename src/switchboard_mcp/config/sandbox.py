"""The sandbox settings of a child: presets, and the effective words of one child. Pure.

`effective` combines preset, default and suite into `SandboxWords`, which `sandbox.plan` turns into mechanisms and which
an approval records. The docstring under a field is its description in the published JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

Preset = Literal["strict", "workspace", "browser", "off"]
Mechanism = Literal["auto", "linux", "bubblewrap"]
Mebibytes = Annotated[int, Meta(ge=1)]
Amount = Annotated[int, Meta(ge=1)]
Path = Annotated[str, Meta(min_length=1)]
VARIABLES = ("workspace", "home", "cache", "tmp", "package")
WEB_PORTS = (80, 443)
ANY_HOST = "*"
# Names of variables that no child needs a permission for: home, language, folders and certificates. None is a secret.
BASIC_ENV = (
    "COLUMNS", "HOME", "LANG", "LANGUAGE", "LC_*", "LINES", "LOGNAME", "NODE_EXTRA_CA_CERTS", "NO_COLOR", "PATH",
    "REQUESTS_CA_BUNDLE", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ", "USER",
)  # fmt: skip
# Files that other programs obey: a child that may write them leaves its sandbox through those programs. Of hosts, those
# that `init` knows, and the instructions that agents follow.
PROTECTED_NAMES = (
    ".aider.conf.yml", ".amp", ".augment", ".claude", ".cline", ".clinerules", ".codex", ".continue", ".crush",
    ".crush.json", ".cursor", ".cursorrules", ".devcontainer", ".envrc", ".factory", ".gemini", ".git", ".github",
    ".gitlab-ci.yml", ".goosehints", ".husky", ".idea", ".junie", ".kiro", ".mcp.json", ".mise.toml", ".opencode",
    ".pre-commit-config.yaml", ".qwen", ".roo", ".roorules", ".trae", ".vscode", ".warp", ".windsurf", ".windsurfrules",
    ".zed", "AGENT.md", "AGENTS.md", "CLAUDE.local.md", "CLAUDE.md", "CRUSH.md", "GEMINI.md", "QWEN.md", "WARP.md",
    "crush.json", "mcp-descriptions.json", "mcps", "mise.toml", "opencode.json", "opencode.jsonc",
    "switchboard.approvals.json", "switchboard.config.json", "switchboard.config.toml", "switchboard.lock.json",
)  # fmt: skip
PROTECTED = tuple(f"${{workspace}}/{name}" for name in PROTECTED_NAMES)


class SandboxFiles(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Files and folders beyond those of the preset."""

    read: list[Path] = []
    """Files and folders that the child may read and run. They may begin with `${workspace}`, `${home}`, `${cache}`,
    `${tmp}` or `${package}`."""
    write: list[Path] = []
    """Files and folders that the child may read and write. Folders below `${cache}` are created."""
    protect: list[Path] | None = None
    """Files and folders that stay read-only within those the child may write. Default: what other programs obey, such
    as `.git` and the files of editors, hosts and Switchboard, in every folder. `[]` protects nothing."""
    home: Literal["private", "user"] | None = None
    """`private`: HOME is a folder that this child alone uses, `${cache}`; it is kept. `user`: HOME is the user's, and
    what may be read and written there is listed. Default: `private`."""


class SandboxLimits(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Limits of the system for a child. Values that are not set come from the preset."""

    memory_mb: Mebibytes | None = None
    """Memory that each process may allocate, in MiB."""
    cpu_seconds: Amount | None = None
    """Processor time of each process, in seconds. Unlimited by default."""
    open_files: Amount | None = None
    """Files that each process may have open."""
    processes: Amount | None = None
    """Processes and threads of the child together."""
    file_size_mb: Mebibytes | None = None
    """Size of a file that the child may write, in MiB."""
    tmp_mb: Mebibytes | None = None
    """Size of the temporary folder, in MiB. It is kept in memory."""


# The instances that mean "not set": msgspec omits a default by identity.
NO_FILES = SandboxFiles()
NO_LIMITS = SandboxLimits()


class SandboxSettings(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The sandbox of a child process."""

    preset: Preset | None = None
    """`strict`: reads its program, writes a temporary folder, no network. `workspace`: also writes the workspace and
    its own cache, with a loopback of its own. `browser`: as `workspace`, for servers that start a browser, with
    network. `off`: no sandbox. Default: `workspace` in governed mode, or if anything is set here; otherwise `off`."""
    mechanism: Mechanism | None = None
    """`linux`: Switchboard makes the sandbox itself. `bubblewrap`: by `bwrap`. One that does not work here refuses
    to start the child. Default: `auto`, which is `linux`, or `bubblewrap` if only that works here."""
    required: bool | None = None
    """Refuse to start the child if this system cannot keep all promises of its sandbox. Default: false."""
    files: SandboxFiles = NO_FILES
    """Files and folders beyond those of the preset."""
    network: Literal["none", "loopback", "all"] | list[str] | None = None
    """`none`; `loopback`: only its own processes; `all`; or hosts such as `api.github.com` (ports 80 and 443),
    `*.example.com:443`, `192.0.2.7:5432`, `10.0.0.0/8:5432`, `[2001:db8::7]:5432` and `localhost:5432` (this
    machine)."""
    processes: bool | list[str] | None = None
    """True: the child may start programs. False: it may not. A list: only these programs, by name or path."""
    env: list[str] | None = None
    """Names of environment variables that the child inherits; `*` matches any part of a name. Its own `env` is always
    set. Default: home, language, PATH and certificates; in governed mode `governance.env`."""
    limits: SandboxLimits = NO_LIMITS
    """Limits of the system."""


Sandbox = SandboxSettings | Preset


class HostRule(Struct, frozen=True):
    """A host that may be reached: a name, a pattern `*.example.com`, an address or a network, and its ports."""

    host: str
    ports: tuple[int, ...]


class SandboxWords(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The effective sandbox of one child, in the words of the config. Paths have their variables still."""

    preset: Preset
    """The preset."""
    mechanism: Mechanism = "auto"
    """The program or the system calls that make it."""
    required: bool = False
    """True if the child does not start unless all promises hold."""
    read: list[str] = []
    """What the child may read, beside its program and the system's."""
    write: list[str] = []
    """What the child may write."""
    protect: list[str] = []
    """What stays read-only."""
    home: Literal["private", "user"] = "private"
    """Its home folder."""
    network: Literal["none", "loopback", "hosts", "all"] = "none"
    """Its network."""
    hosts: list[str] = []
    """The hosts that it may reach."""
    processes: bool | list[str] = True
    """The programs that it may start."""
    env: list[str] | None = None
    """The variables that it inherits; the default if not set."""
    limits: dict[str, int] = {}
    """Its limits, by name."""

    @property
    def is_on(self) -> bool:
        """True if there is a sandbox."""
        return self.preset != "off"


LIMITS = {"memoryMb": 8192, "openFiles": 4096, "processes": 512, "fileSizeMb": 2048, "tmpMb": 512}
OFF = SandboxWords(preset="off")
PRESETS: dict[str, SandboxWords] = {
    "off": OFF,
    "strict": SandboxWords(
        preset="strict", network="none", limits={**LIMITS, "memoryMb": 4096, "processes": 128, "tmpMb": 128}
    ),
    "workspace": SandboxWords(
        preset="workspace",
        write=["${workspace}", "${cache}"],
        protect=list(PROTECTED),
        network="loopback",
        limits=dict(LIMITS),
    ),
    "browser": SandboxWords(
        preset="browser",
        write=["${workspace}", "${cache}"],
        protect=list(PROTECTED),
        network="all",
        limits={**LIMITS, "memoryMb": 65536, "openFiles": 16384, "processes": 4096, "tmpMb": 2048},
    ),
}


def merged(default: Sandbox | None, own: Sandbox | None, *, governed: bool = False) -> SandboxSettings:
    """Return the settings of a child from the workspace's default and its own, always with a preset.

    An approval and a lock record them in this form: a preset by its name, so that a new version that improves a preset
    needs no new approval.
    """
    base, mine = _settings(default), _settings(own)
    is_set = governed or default is not None or own is not None
    preset = mine.preset or base.preset or ("workspace" if is_set else "off")
    if preset == "off":
        return SandboxSettings(preset="off")
    if mine.preset is not None and mine.preset != base.preset:
        # A child with its own preset inherits nothing: what the default adds belongs to the default's preset.
        return mine
    files = SandboxFiles(
        read=_joined(base.files.read, mine.files.read),
        write=_joined(base.files.write, mine.files.write),
        protect=base.files.protect if mine.files.protect is None else mine.files.protect,
        home=mine.files.home or base.files.home,
    )
    limits = SandboxLimits(**_chosen(SandboxLimits.__struct_fields__, mine.limits, base.limits))
    rest = set(SandboxSettings.__struct_fields__) - {"preset", "files", "limits"}
    return SandboxSettings(
        preset=preset,
        files=NO_FILES if files == NO_FILES else files,
        limits=NO_LIMITS if limits == NO_LIMITS else limits,
        **_chosen(rest, mine, base),
    )


def _chosen(names: Iterable[str], first: Struct, second: Struct) -> dict[str, Any]:
    """Return the fields of the first that are set, and otherwise those of the second."""
    values = {name: (getattr(first, name), getattr(second, name)) for name in names}
    return {name: second if first is None else first for name, (first, second) in values.items()}


def effective(default: Sandbox | None, own: Sandbox | None, *, governed: bool = False) -> SandboxWords:
    """Return the sandbox of a child from the workspace's default and its own settings."""
    return words_of(merged(default, own, governed=governed))


def words_of(settings: SandboxSettings) -> SandboxWords:
    """Return the words of settings with a preset: paths are added to the preset's, everything else is replaced."""
    assert settings.preset is not None
    words = PRESETS[settings.preset]
    return words if settings.preset == "off" else _add(words, settings)


def brief(settings: SandboxSettings) -> str:
    """Return settings in one line, as they are written in the config."""
    members = msgspec.to_builtins(settings)
    return str(members["preset"]) if len(members) == 1 else msgspec.json.encode(members).decode()


def _settings(value: Sandbox | None) -> SandboxSettings:
    if isinstance(value, SandboxSettings):
        return value
    return SandboxSettings(preset=value)


def _add(words: SandboxWords, layer: SandboxSettings) -> SandboxWords:
    changes: dict[str, Any] = {
        "read": _joined(words.read, layer.files.read),
        "write": _joined(words.write, layer.files.write),
    }
    if layer.files.protect is not None:
        changes["protect"] = list(layer.files.protect)
    if layer.files.home is not None:
        changes["home"] = layer.files.home
    if isinstance(layer.network, list):
        changes |= {"network": "hosts", "hosts": list(layer.network)}
    elif layer.network is not None:
        changes |= {"network": layer.network, "hosts": []}
    for name in ("mechanism", "required", "processes", "env"):
        if getattr(layer, name) is not None:
            changes[name] = getattr(layer, name)
    names = zip(SandboxLimits.__struct_fields__, SandboxLimits.__struct_encode_fields__, strict=True)
    limits = {encoded: getattr(layer.limits, name) for name, encoded in names}
    changes["limits"] = words.limits | {name: value for name, value in limits.items() if value is not None}
    return structs.replace(words, **changes)


def _joined(first: list[str], second: list[str]) -> list[str]:
    return list(dict.fromkeys((*first, *second)))


def sandbox_mistakes(value: Sandbox | None) -> Iterator[tuple[str, str]]:
    """Yield the key and the message of each mistake that the types of the settings do not rule out."""
    if not isinstance(value, SandboxSettings):
        return
    lists = {"read": value.files.read, "write": value.files.write, "protect": value.files.protect or []}
    for name, paths in lists.items():
        for index, path in enumerate(paths):
            if problem := path_problem(path):
                yield f"files.{name}[{index}]", problem
    for index, text in enumerate(value.network if isinstance(value.network, list) else ()):
        rule = parse_host(text)
        if isinstance(rule, str):
            yield f"network[{index}]", rule


def path_problem(path: str) -> str:
    """Return the mistake in a path, or an empty string."""
    start = re.match(r"\$\{([^}]*)\}(/|$)", path)
    if start is None and not path.startswith(("/", "~/")):
        return "must be absolute, or begin with ${workspace}, ${home}, ${cache}, ${tmp} or ${package}."
    if start is not None and start[1] not in VARIABLES:
        return f"has no variable ${{{start[1]}}}. Use ${{{'}, ${'.join(VARIABLES)}}}."
    rest = path[start.end() :] if start is not None else path
    if "${" in rest:
        return "may have a variable at its beginning only."
    if ".." in rest.split("/") or "\0" in rest:
        return "must not contain `..`."
    return ""


_NAME = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*\.?"
)
_NUMBER = re.compile(r"\d{1,5}")


def parse_host(text: str) -> HostRule | str:
    """Return the rule for a host, or the mistake in it."""
    host, colon, ports = _split_ports(text.strip().lower())
    numbers = tuple(int(one) if _NUMBER.fullmatch(one) else 0 for one in ports.split(",")) if ports else ()
    if colon and (not numbers or not all(0 < number < 65536 for number in numbers)):
        return f"`{text}` needs a port between 1 and 65535 after the colon, or none."
    if host in ("127.0.0.1", "::1"):
        host = "localhost"
    if host == "localhost" and not numbers:
        return "`localhost` needs a port, as in `localhost:5432`."
    is_name = len(host) <= 253 and _NAME.fullmatch(host) and not host.rpartition(".")[2].isdecimal()
    if not (host == ANY_HOST or is_name):
        host = _network(host)
    if not host:
        return f"`{text}` is not a host. Write a name, `*.` and a name, an address or a network."
    return HostRule(host.rstrip("."), numbers or WEB_PORTS)


def _split_ports(text: str) -> tuple[str, str, str]:
    """Return the host, the colon if there is one, and the ports. An IPv6 address with ports is in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_complete = bracket and (not rest or rest.startswith(":"))
        return (host, rest[:1], rest[1:]) if is_complete else ("", "", "")
    if text.count(":") > 1:
        return text, "", ""
    return text.partition(":")


def _network(host: str) -> str:
    """Return an address or a network as it is usually written, or an empty string."""
    import ipaddress  # a config without host rules does not need it

    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return ""
    if "%" in host:  # an address of one interface
        return ""
    return str(network.network_address) if "/" not in host else str(network)


def describe_network(words: SandboxWords) -> str:
    """Return the network of a sandbox in a few words."""
    return ", ".join(words.hosts) if words.network == "hosts" else words.network


def fill_path(path: str, places: Mapping[str, str]) -> str:
    """Return a path of the settings with its variable replaced; empty if this sandbox has no such folder."""
    if path.startswith("~/"):
        path = "${home}" + path[1:]
    if not path.startswith("${"):
        return path
    name, _, rest = path[2:].partition("}")
    folder = places.get(name, "")
    return folder + rest if folder else ""
