"""Renders the file of a child for `init`, `add` and `import`, and finds secrets in it.

Also knows the folders of children and which names are taken. Not aware of hosts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from shutil import which

from msgspec import Struct, structs

from switchboard_mcp.config import sections
from switchboard_mcp.config.documents import read_document
from switchboard_mcp.config.entries import EntryLocation, read_entry
from switchboard_mcp.config.files.descriptions import read_descriptions
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning
from switchboard_mcp.config.sections import PROGRAM_NAME
from switchboard_mcp.config.variables import secret_values
from switchboard_mcp.errors import refused
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name
from switchboard_mcp.setup.dialects import OPEN_FOLDER, HostServer
from switchboard_mcp.setup.known_servers import find_known_server

FOLDER = ".switchboard"
FILE = ".mcp.json"
# Names of the built-in children.
HOSTS_KEY = "hosts"
RESERVED = frozenset({sections.MAIL_NAME, "switchboard", "original", PROGRAM_NAME})
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_SHORTEST_SECRET = 5


class ChildrenFolder(Struct, frozen=True):
    """A folder for new children. `to_workspace` is relative, so the workspace can be moved with its children."""

    folder: str
    to_workspace: str
    mode: int
    # The working directory of a server without one of its own; empty for the workspace.
    cwd: str = ""

    @property
    def glob(self) -> str:
        """The glob that finds the children in this folder."""
        return f"{self.folder}/*/{FILE}"


PERSONAL = ChildrenFolder(f"{FOLDER}/mcps", "../../..", 0o600)
# In the user workspace: a server works in the project that is open.
USER = ChildrenFolder(f"{FOLDER}/mcps", "../../..", 0o600, OPEN_FOLDER)
# Committed with the project, for everyone who works on it.
TEAM = ChildrenFolder("mcps", "../..", 0o644)


class LiteralSecret(Struct, frozen=True):
    """A secret written in plain text: its location in the entry, its name and its value."""

    location: str
    name: str
    value: str


def safe_name(name: str) -> str:
    """Return a name that is valid for a folder and for a tool."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:48]
    return cleaned or "server"


def child_path(workspace: str, name: str, children: ChildrenFolder = PERSONAL) -> str:
    """Return the path of a child's file."""
    return os.path.join(workspace, *children.folder.split("/"), name, FILE)


def render_child(
    name: str,
    server: HostServer,
    workspace: str,
    children: ChildrenFolder = PERSONAL,
    hosts: Sequence[str] = (),
) -> bytes:
    """Return the content of a child's file. `hosts` are those that it was moved from.

    The library describes the child, unless the workspace's own descriptions do: those stay where they can be edited.
    """
    own = read_descriptions(workspace).get(name)
    described = own is not None and bool(own.switchboard)
    library_entry = None if described else find_known_server(server.command, server.args, server.url)
    entry: dict[str, object] = {"name": name}
    if server.description:
        entry["description"] = server.description
    if library_entry is not None and library_entry.switchboard:
        entry["switchboardDescription"] = library_entry.switchboard
    if server.kind == "stdio":
        command: dict[str, object] = {"cmd": server.command, "args": server.args}
        if server.env:
            command["env"] = server.env
        entry |= {"type": "stdio", "command": command}
        entry["cwd"] = _relative_folder(server.cwd or children.cwd or workspace, workspace, children)
    else:
        entry |= {"type": server.kind, "url": server.url}
        if server.headers:
            entry["headers"] = server.headers
        if server.oauth is not None:
            entry["oauth"] = server.oauth
    if server.timeout_ms is not None:
        entry["rpcTimeoutMs"] = server.timeout_ms
    if server.disabled:
        entry["disabled"] = True
    if hosts:
        entry["metadata"] = {HOSTS_KEY: list(hosts)}
    return (json.dumps(entry, indent=2, ensure_ascii=False) + "\n").encode()


def _relative_folder(folder: str, workspace: str, children: ChildrenFolder) -> str:
    """Return the working directory as a child's file names it: relative if it is in the workspace."""
    if folder.startswith("${"):
        return folder
    inside = os.path.relpath(folder, workspace)
    away = inside.split(os.sep)[0] == ".."
    return folder if away else os.path.normpath(os.path.join(children.to_workspace, inside))


def hosts_of_child(spec: ChildSpec) -> list[str]:
    """Return the hosts that `init` moved a child from, as its file says."""
    if spec.key or spec.kind == "builtin":
        return []
    document = read_document(spec.source)
    metadata = document.get("metadata") if isinstance(document, dict) else None
    hosts = metadata.get(HOSTS_KEY) if isinstance(metadata, dict) else None
    return [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []


def find_problem(name: str, server: HostServer, workspace: str) -> str:
    """Return why Switchboard would skip this child; empty if it is valid."""
    warnings: list[ConfigWarning] = []
    path = child_path(workspace, name)
    entry = json.loads(render_child(name, structs.replace(server, disabled=False), workspace))
    spec = read_entry(entry, EntryLocation(path, "", os.path.dirname(path)), warnings)
    return (
        ""
        if spec is not None and not spec.incomplete
        else "; ".join(f"{warning.key}: {warning.message}" for warning in warnings)
    )


def _to_spec(server: HostServer) -> ChildSpec:
    """Convert a server for the functions of `config`."""
    return ChildSpec(
        name="",
        source="",
        kind=server.kind,
        command=server.command,
        args=server.args,
        env=server.env,
        url=server.url,
        headers=server.headers,
    )


def server_from_spec(spec: ChildSpec, config: Config, workspace: str) -> HostServer:
    """Convert an existing child, to compare it with the servers of hosts."""
    suite = config.suites.get(spec.name)
    return HostServer(
        kind="stdio" if spec.kind == "builtin" else spec.kind,
        command=spec.command,
        args=spec.args,
        env=spec.env,
        url=spec.url,
        headers=spec.headers,
        cwd="" if spec.kind != "stdio" else _own_folder(spec.cwd, workspace),
        allow=sorted(suite.expose.allow) if suite else [],
        deny=sorted(suite.expose.deny) if suite else [],
    )


def _own_folder(cwd: str, workspace: str) -> str:
    """Return a working directory as a host's entry has it: empty if it is the default."""
    _, reference, rest = cwd.partition(os.sep + "${")
    cwd = "${" + rest if reference else cwd
    return "" if cwd in (workspace, OPEN_FOLDER) else cwd


def is_missing(command: str) -> bool:
    """Return True if the command is a bare name that is not on the PATH. Paths and variables are checked later."""
    return bool(command) and not any(sign in command for sign in "/\\$") and which(command) is None


def redacted_target(server: HostServer) -> str:
    """Return the command line or URL of a server, with secrets masked."""
    redactor = Redactor()
    for value in secret_values(_to_spec(server), {}):
        redactor.register(value)
    words = [server.command, *server.args] if server.kind == "stdio" else [server.url]
    masked = (
        "[redacted]" if _looks_random(word) and "://" not in word else redactor.redact_text(word)
        for word in words
    )
    return redactor.redact_text(" ".join(masked))


def find_literal_secrets(server: HostServer) -> list[LiteralSecret]:
    """Return the secrets written in plain text, without duplicates."""
    secrets = list(_iter_literal_secrets(server))
    return [
        secret
        for index, secret in enumerate(secrets)
        if secret.value not in {old.value for old in secrets[:index]}
    ]


def _iter_literal_secrets(server: HostServer) -> Iterator[LiteralSecret]:
    for name, value in server.env.items():
        if _is_secret(name, value):
            yield LiteralSecret(f"env.{name}", name, value)
    for name, value in server.headers.items():
        bare = value.rpartition(" ")[2]
        if _is_secret(name, bare):
            yield LiteralSecret(f"headers.{name}", "TOKEN" if name.lower() == "authorization" else name, bare)
    for text, following in zip(server.args, (*server.args[1:], ""), strict=False):
        option, equals, value = text.partition("=")
        if option.startswith("-") and is_secret_name(option):
            value = value if equals else "" if following.startswith("-") else following
            if _is_secret(option, value):
                yield LiteralSecret(f"args {option}", option.lstrip("-"), value)
    for value in (*server.args, server.url):
        masked = Redactor().redact_text(value)
        if masked != value and not _REFERENCE.search(value) and "://" not in value:
            yield LiteralSecret("args", "SECRET", value)
    for value in secret_values(_to_spec(HostServer(kind="http", url=server.url)), {}):
        if not _REFERENCE.search(value):
            yield LiteralSecret("url", "SECRET", value)


def _is_secret(name: str, value: str) -> bool:
    if len(value) < _SHORTEST_SECRET or _REFERENCE.search(value):
        return False
    if re.match(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]", value):
        return False
    named_secret = is_secret_name(name) or name.upper().endswith(("KEY", "AUTH", "PAT"))
    return named_secret or Redactor().redact_text(value) != value


def _looks_random(word: str) -> bool:
    """Return True for a long word of letters and digits that is neither a path nor a package."""
    return bool(_LONG.fullmatch(word)) and sum(character.isdigit() for character in word) >= 4


def replace_literal_secrets(
    name: str, server: HostServer, variables: Mapping[str, str]
) -> tuple[HostServer, dict[str, str]]:
    """Replace secrets in plain text by `${VAR}`; return the server and the values of the variables."""
    values: dict[str, str] = {}
    for secret in find_literal_secrets(server):
        variable = _variable_name(name, secret, {**variables, **values})
        values[variable] = secret.value
        put = f"${{{variable}}}"

        def substitute(text: str, value: str = secret.value, reference: str = put) -> str:
            return text.replace(value, reference)

        server = structs.replace(
            server,
            args=[substitute(text) for text in server.args],
            env={key: substitute(text) for key, text in server.env.items()},
            headers={key: substitute(text) for key, text in server.headers.items()},
            url=substitute(server.url),
        )
    return server, values


def _variable_name(child: str, secret: LiteralSecret, variables: Mapping[str, str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", secret.name).strip("_").upper()
    own = re.sub(r"[^A-Za-z0-9]+", "_", child).strip("_").upper()
    candidates = [plain] if secret.location.startswith("env.") else []
    candidates += [
        f"{own}_{plain}",
        f"MCP_{own}_{plain}",
        *(f"MCP_{own}_{plain}_{number}" for number in range(2, 1000)),
    ]
    free = (name for name in candidates if variables.get(name, secret.value) == secret.value)
    return next(name for name in free if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name))


def require_discoverable(config: Config, source: str, children: ChildrenFolder = PERSONAL) -> None:
    """Raise `setup_refused` if the settings would not find a child in this folder."""
    if children.glob not in config.discover_globs:
        message = f"{source}: discoverGlobs does not include {children.glob}, where new children are written."
        raise refused("setup_refused", message, hint="Add it to discoverGlobs, then run the command again.")


def taken_names(workspace: str, children: Sequence[ChildSpec]) -> set[str]:
    """Return the names in use: of children, and of folders of disabled or broken children."""
    names = {spec.name for spec in children} | set(RESERVED)
    for home in (PERSONAL, TEAM):
        path = os.path.join(workspace, home.folder)
        if os.path.isdir(path):
            names |= {name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, FILE))}
    return names
