"""The file of one child, as `init`, `add` and `import` write it; and what is known of the children already there.

Owns the seed dialect as it is written, safe names, and which of a server's values are secrets written out. Does not
know hosts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from switchboard_mcp.config import sections
from switchboard_mcp.config.entries import EntryLocation, read_entry
from switchboard_mcp.config.models import ChildSpec, Config, ConfigWarning
from switchboard_mcp.config.variables import secrets
from switchboard_mcp.errors import refused
from switchboard_mcp.redaction.redactor import Redactor, is_secret_name
from switchboard_mcp.setup.descriptions import describe
from switchboard_mcp.setup.dialects import HostServer

FOLDER = ".switchboard"
FILE = ".mcp.json"
# Variables that secrets were made into, for a shell to read.
SECRETS = os.path.join(FOLDER, "secrets.env")
# Names that children of Switchboard itself have.
RESERVED = frozenset({sections.MAIL_NAME, "switchboard", "original"})
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_LONG = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_SHORTEST_SECRET = 5


class ChildrenFolder(Struct, frozen=True):
    """Where children are put. `up` leads from the file of a child to its workspace, so that both can be moved."""

    folder: str
    up: str
    mode: int

    @property
    def glob(self) -> str:
        """What finds the children there."""
        return f"{self.folder}/*/{FILE}"


OWN = ChildrenFolder(f"{FOLDER}/mcps", "../../..", 0o600)
# What is kept with the project, for everybody who works on it.
TEAM = ChildrenFolder("mcps", "../..", 0o644)


class Literal(Struct, frozen=True):
    """A secret that is written out: where, under which name, and what it is."""

    where: str
    name: str
    value: str


def safe_name(name: str) -> str:
    """A name that can be a folder and a tool's."""
    found = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:48]
    return found or "server"


def child_path(workspace: str, name: str, home: ChildrenFolder = OWN) -> str:
    """Where the file of a child is put."""
    return os.path.join(workspace, *home.folder.split("/"), name, FILE)


def child_text(name: str, server: HostServer, workspace: str, home: ChildrenFolder = OWN) -> bytes:
    """The file of a child."""
    known = describe(server.command, server.args, server.url)
    entry: dict[str, object] = {"name": name}
    if server.description:
        entry["description"] = server.description
    if known is not None and known.switchboard:
        entry["switchboardDescription"] = known.switchboard
    if server.kind == "stdio":
        command: dict[str, object] = {"cmd": server.command, "args": server.args}
        if server.env:
            command["env"] = server.env
        entry |= {"type": "stdio", "command": command}
        inside = os.path.relpath(server.cwd or workspace, workspace)
        away = inside.split(os.sep)[0] == ".."
        entry["cwd"] = server.cwd if away else os.path.normpath(os.path.join(home.up, inside))
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
    return (json.dumps(entry, indent=2, ensure_ascii=False) + "\n").encode()


def problem_of(name: str, server: HostServer, workspace: str) -> str:
    """Why Switchboard would leave this child out; empty where it takes it."""
    warnings: list[ConfigWarning] = []
    path = child_path(workspace, name)
    entry = json.loads(child_text(name, structs.replace(server, disabled=False), workspace))
    spec = read_entry(entry, EntryLocation(path, "", os.path.dirname(path)), warnings)
    return "" if spec is not None else "; ".join(f"{each.key}: {each.message}" for each in warnings)


def _spec(server: HostServer) -> ChildSpec:
    """The server as the rest of Switchboard sees it."""
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


def server_of(spec: ChildSpec, config: Config, workspace: str) -> HostServer:
    """A child that is there already, to be compared with what is found elsewhere."""
    suite = config.suites.get(spec.name)
    return HostServer(
        kind="stdio" if spec.kind == "builtin" else spec.kind,
        command=spec.command,
        args=spec.args,
        env=spec.env,
        url=spec.url,
        headers=spec.headers,
        cwd="" if spec.kind != "stdio" or spec.cwd == workspace else spec.cwd,
        allow=sorted(suite.expose.allow) if suite else [],
        deny=sorted(suite.expose.deny) if suite else [],
    )


def shown(server: HostServer) -> str:
    """What a server runs or where it is, with secrets masked."""
    redactor = Redactor()
    for value in secrets(_spec(server), {}):
        redactor.register(value)
    words = [server.command, *server.args] if server.kind == "stdio" else [server.url]
    masked = (
        "[redacted]" if _looks_random(word) and "://" not in word else redactor.text(word) for word in words
    )
    return redactor.text(" ".join(masked))


def literals(server: HostServer) -> list[Literal]:
    """Secrets that are written out."""
    found = list(_literals(server))
    return [
        each for index, each in enumerate(found) if each.value not in {old.value for old in found[:index]}
    ]


def _literals(server: HostServer) -> Iterator[Literal]:
    for name, value in server.env.items():
        if _is_secret(name, value):
            yield Literal(f"env.{name}", name, value)
    for name, value in server.headers.items():
        bare = value.rpartition(" ")[2]
        if _is_secret(name, bare):
            yield Literal(f"headers.{name}", "TOKEN" if name.lower() == "authorization" else name, bare)
    for text, following in zip(server.args, (*server.args[1:], ""), strict=False):
        option, equals, value = text.partition("=")
        if option.startswith("-") and is_secret_name(option):
            value = value if equals else "" if following.startswith("-") else following
            if _is_secret(option, value):
                yield Literal(f"args {option}", option.lstrip("-"), value)
    for value in (*server.args, server.url):
        masked = Redactor().text(value)
        if masked != value and not _REFERENCE.search(value) and "://" not in value:
            yield Literal("args", "SECRET", value)
    for value in secrets(_spec(HostServer(kind="http", url=server.url)), {}):
        if not _REFERENCE.search(value):
            yield Literal("url", "SECRET", value)


def _is_secret(name: str, value: str) -> bool:
    if len(value) < _SHORTEST_SECRET or _REFERENCE.search(value):
        return False
    if re.match(r"(?:~|\.{1,2})?[/\\]|[A-Za-z]:[/\\]", value):
        return False
    told = is_secret_name(name) or name.upper().endswith(("KEY", "AUTH", "PAT"))
    return told or Redactor().text(value) != value


def _looks_random(word: str) -> bool:
    """Something long of letters and digits that is no path and no package."""
    return bool(_LONG.fullmatch(word)) and sum(character.isdigit() for character in word) >= 4


def without_literals(
    name: str, server: HostServer, taken: Mapping[str, str]
) -> tuple[HostServer, dict[str, str]]:
    """The server with `${VAR}` where a secret was written out, and the values of those variables."""
    values: dict[str, str] = {}
    for each in literals(server):
        variable = _variable(name, each, {**taken, **values})
        values[variable] = each.value
        put = f"${{{variable}}}"

        def told(text: str, value: str = each.value, put: str = put) -> str:
            return text.replace(value, put)

        server = structs.replace(
            server,
            args=[told(text) for text in server.args],
            env={key: told(text) for key, text in server.env.items()},
            headers={key: told(text) for key, text in server.headers.items()},
            url=told(server.url),
        )
    return server, values


def _variable(child: str, each: Literal, taken: Mapping[str, str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "_", each.name).strip("_").upper()
    own = re.sub(r"[^A-Za-z0-9]+", "_", child).strip("_").upper()
    wanted = [plain] if each.where.startswith("env.") else []
    wanted += [
        f"{own}_{plain}",
        f"MCP_{own}_{plain}",
        *(f"MCP_{own}_{plain}_{number}" for number in range(2, 1000)),
    ]
    free = (name for name in wanted if taken.get(name, each.value) == each.value)
    return next(name for name in free if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name))


def known_secrets(data: bytes) -> dict[str, str]:
    """The variables in the file of secrets."""
    found = re.findall(
        r"^([A-Za-z_][A-Za-z0-9_]*)='(.*?)'$", data.decode("utf-8", "replace"), re.MULTILINE | re.DOTALL
    )
    return {name: value.replace("'\\''", "'") for name, value in found}


def with_secrets(data: bytes, values: Mapping[str, str]) -> bytes:
    """The file of secrets with more in it."""
    known = known_secrets(data)
    fresh = {name: value.replace("'", "'\\''") for name, value in values.items() if known.get(name) != value}
    return data + "".join(f"{name}='{value}'\n" for name, value in sorted(fresh.items())).encode()


def demand_found(config: Config, source: str, home: ChildrenFolder = OWN) -> None:
    """Refuse where the settings would not find a child that is put into its folder."""
    if home.glob not in config.discover_globs:
        told = f"{source}: discoverGlobs leaves out {home.glob}, where children are put."
        raise refused("setup_refused", told, hint="Add it to discoverGlobs, then try again.")


def names_there(workspace: str, known: Sequence[ChildSpec]) -> set[str]:
    """Names that are taken: children, and folders of children that are switched off or broken."""
    names = {spec.name for spec in known} | set(RESERVED)
    for home in (OWN, TEAM):
        path = os.path.join(workspace, home.folder)
        if os.path.isdir(path):
            names |= {name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, FILE))}
    return names
