"""`switchboard wrap` and `unwrap`: replace a child's file by that of its wrapper, and restore it byte for byte.

A child with its own folder (`…/NAME/.mcp.json`) is wrapped in place: its file moves to `original/`. A child
that is configured elsewhere, in an `mcpServers` map or under another file name, stays unchanged: its wrapper gets the
folder `.switchboard/mcps/NAME` and takes its place. The child is configured at every moment.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from contextlib import suppress
from shlex import quote

import msgspec
from msgspec import Struct

from switchboard_mcp.app import project_folder
from switchboard_mcp.app import run as run_loop
from switchboard_mcp.ask.host_access import KEYS, find_key
from switchboard_mcp.ask.plan import Offered, needs_consent
from switchboard_mcp.cli.invocation import Invocation, find_child, open_switchboard, own_command
from switchboard_mcp.cli.local_client import LocalClient, connected
from switchboard_mcp.cli.parser import Command, flag, option, positional, repeatable
from switchboard_mcp.cli.toolbox import SuiteToolbox, load_originals
from switchboard_mcp.config.discover import ELSEWHERE
from switchboard_mcp.config.files.descriptions import ChildDescription, read_descriptions
from switchboard_mcp.config.load import JSON_NAME, load_workspace
from switchboard_mcp.config.models import ChildSpec, Workspace
from switchboard_mcp.config.sections import ASK_SUBTOOL, Expose
from switchboard_mcp.config.wrapped_children import FILE, ORIGINAL, ROLE_FILE, wrapper_folder
from switchboard_mcp.errors import SwitchboardError, refused
from switchboard_mcp.policy.access import access
from switchboard_mcp.setup.edit import formats
from switchboard_mcp.setup.edit.text_edit import UnsafeEditError
from switchboard_mcp.setup.journal import read, write
from switchboard_mcp.setup.known_servers import find_known_server
from switchboard_mcp.system.atomic_write import write_atomically

# A request may wait for its model; the call that carries it must not time out first.
SPARE_MS = 60_000
# Tells a wrapper to keep the child's own subtools.
PASSTHROUGH = "--passthrough"
HEAD = (
    f"<!-- Instructions for the model behind `{ASK_SUBTOOL}` of '{{child}}'. Edit them freely. ({{sum}}) -->"
)


class WrapReport(Struct, frozen=True):
    """The answer of `--json`. The last members are those of `ConsentRules`."""

    child: str
    folder: str
    files: list[str]
    kept: list[str]
    consent: list[str] = []
    trusted: list[str] = []
    unmatched: list[str] = []
    unlisted: str = ""


class ConsentRules(Struct, frozen=True):
    """The subtools that need a person's consent, and those that would but are trusted.

    `unmatched` are trusted names that no subtool has; `unlisted` is the reason if the subtools are not known.
    """

    consent: list[str] = []
    trusted: list[str] = []
    unmatched: list[str] = []
    unlisted: str = ""


def run(invocation: Invocation) -> int:
    """Wrap the child and say where."""
    workspace = _workspace(invocation)
    spec = find_child(workspace, invocation.args.child, invocation.console)
    trust = _with_trust(workspace, spec.name, invocation.args.trust)
    if spec.wraps and trust is None and not invocation.args.hide:
        raise _refused(
            f"Child '{spec.name}' is already wrapped: {spec.source}.", "Edit its CLAUDE.md, or unwrap it."
        )
    if spec.wraps:
        _write_trust(workspace, trust)
        if invocation.args.hide:
            hide_subtools(spec.source)
        rules = find_consent_rules(invocation, spec.name)
        report = WrapReport(spec.name, os.path.dirname(spec.source), [], [], *msgspec.structs.astuple(rules))
        _show(invocation, report, _consent_lines(spec.name, rules))
        return 0
    if spec.incomplete:
        raise _refused(f"Child '{spec.name}' cannot run: {spec.incomplete}")
    keeps = _keeps_subtools(workspace, spec, hide=invocation.args.hide)
    folder = wrapper_folder(workspace.folder, spec)
    in_place = os.path.dirname(spec.source) == folder
    path = os.path.join(folder, FILE)
    _check_wrappable(path, spec, in_place=in_place)
    role = role_text(workspace.folder, spec)
    wraps = ORIGINAL if in_place else ELSEWHERE
    entry = _entry(invocation, workspace, spec, folder, wraps, keeps=keeps)
    try:
        os.makedirs(folder, exist_ok=True)
        if in_place:
            _keep_original(path, os.path.join(folder, ORIGINAL))
        write_atomically(path, entry, 0o666)
        kept = [] if _write_new(os.path.join(folder, ROLE_FILE), role) else [os.path.join(folder, ROLE_FILE)]
    except OSError as problem:
        raise _refused(f"{problem.filename}: {problem.strerror}.") from None
    if not in_place and not find_child(_workspace(invocation), spec.name, invocation.console).wraps:
        _remove(folder)
        message = f"{path}: no glob in `discoverGlobs` matches it. Nothing was changed."
        raise _refused(message, "Add '.switchboard/mcps/*/.mcp.json' to discoverGlobs, then try again.")
    _write_trust(workspace, trust)
    files = [path, *([os.path.join(folder, ORIGINAL)] if in_place else []), os.path.join(folder, ROLE_FILE)]
    rules = find_consent_rules(invocation, spec.name)
    words = [*_wrapped_lines(spec, folder, kept), *_consent_lines(spec.name, rules)]
    words += _next_steps(workspace, spec, trust_changed=trust is not None, keeps=keeps)
    _show(invocation, WrapReport(spec.name, folder, files, kept, *msgspec.structs.astuple(rules)), words)
    return 0


def _keeps_subtools(workspace: Workspace, spec: ChildSpec, *, hide: bool) -> bool:
    """Return True if the child's own subtools stay. Raises if nothing would be left of it in governed mode."""
    keeps = not can_plan(workspace) and not hide
    if keeps and workspace.config.governance.mode == "governed":
        message = f"No model can plan here ({KEYS[0]} is not set), and in governed mode `{ASK_SUBTOOL}` replaces the"
        raise _refused(
            f"{message} subtools of '{spec.name}'.",
            f"Set {KEYS[0]}, or hide them anyway: `switchboard wrap {quote(spec.name)} --hide`.",
        )
    return keeps


def _next_steps(workspace: Workspace, spec: ChildSpec, *, trust_changed: bool, keeps: bool) -> list[str]:
    """Return the lines about what is left to do."""
    words = []
    if workspace.config.governance.mode == "governed":
        words.append(
            f"It takes effect once `switchboard approve {quote(spec.name)} --ask` lets a model plan its calls."
        )
        if trust_changed:
            words.append("`switchboard approve --settings` approves the changed `ask` section.")
    if not can_plan(workspace):
        lent = ", or use a host that lends its own model" if workspace.config.ask.backend == "auto" else ""
        words.append(f"{KEYS[0]} is not set here: set it where Switchboard is started{lent}.")
    if keeps:
        words.append(
            f"Until then its own subtools stay beside `{ASK_SUBTOOL}`; `switchboard wrap {quote(spec.name)} --hide` "
            "hides them."
        )
    return words


def can_plan(workspace: Workspace) -> bool:
    """Return True if a model is known to plan requests: an API with a key, or the host's own by the settings."""
    return workspace.config.ask.backend == "host" or bool(find_key(os.environ))


def hide_subtools(path: str) -> None:
    """Change the file of a wrapper so that the suite has only the subtool for sentences."""
    try:
        entry = msgspec.json.decode(read(path) or b"{}")
        args = entry["command"]["args"]
        entry["command"]["args"] = [word for word in args if word != PASSTHROUGH]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise _refused(f"{path} was edited.", f"Remove {PASSTHROUGH} from its arguments by hand.") from None
    if len(args) != len(entry["command"]["args"]):
        write(path, _rendered(entry), 0o666)


WRAP = Command(
    "wrap CHILD [OPTIONS]",
    "Let a child take requests in sentences: its suite has one subtool, natural_language, behind which a model finds\n"
    "and calls the child's own. The instructions for the model are in CLAUDE.md beside its file; edit them freely.\n"
    "If no model can plan here, the child's own subtools stay beside it, unless --hide is set.\n"
    "Lists the subtools that a person has to confirm; --trust, now or later, lets one run without that.",
    run=run,
    arguments=[
        positional("child", "name of a child"),
        repeatable("--trust", "NAME", "a subtool that needs no confirmation, or a glob; added to ask.trust"),
        flag("--hide", "hide the child's own subtools even if no model can plan; also later"),
        option("--command", "PROGRAM", "the command of the wrapper (default: the path of this program)"),
    ],
    epilog=(
        "example:\n  switchboard wrap memory --trust 'create_*'\n"
        "  switchboard call memory natural_language query='remember that Ada likes tea'"
    ),
)


def run_unwrap(invocation: Invocation) -> int:
    """Restore the child."""
    workspace = _workspace(invocation)
    spec = find_child(workspace, invocation.args.child, invocation.console)
    if not spec.wraps:
        raise _refused(f"Child '{spec.name}' is not wrapped.", "There is nothing to restore.")
    folder = os.path.dirname(spec.source)
    kept_role = os.path.join(folder, ROLE_FILE)
    try:
        if spec.wraps == ELSEWHERE:
            _remove(folder)
        else:
            os.replace(os.path.join(folder, spec.wraps), spec.source)
            with suppress(OSError):
                os.rmdir(os.path.join(folder, os.path.dirname(spec.wraps)))
            _remove_role(folder)
    except OSError as problem:
        raise _refused(f"{problem.filename}: {problem.strerror}.") from None
    kept = [kept_role] if os.path.exists(kept_role) else []
    words = [f"Child '{spec.name}' is restored."]
    if workspace.config.ask.trust.get(spec.name):
        words.append(f"ask.trust.{spec.name} in {workspace.source} is kept.")
    if kept:
        words.append(f"{kept[0]} was edited, and is kept.")
    _show(invocation, WrapReport(spec.name, folder, [], kept), words)
    return 0


UNWRAP = Command(
    "unwrap CHILD [OPTIONS]",
    "Restore a wrapped child, byte for byte. An edited CLAUDE.md is kept.",
    run=run_unwrap,
    arguments=[
        positional("child", "name of a child"),
    ],
)


def _with_trust(workspace: Workspace, child: str, names: list[str]) -> bytes | None:
    """Return the config with more trusted subtools, or None if none were named."""
    if not names:
        return None
    path = _config_path(workspace)
    trusted = workspace.config.ask.trust.get(child, [])
    trust = [*trusted, *(name for name in names if name not in trusted)]
    try:
        text = formats.decode(read(path) or b"")
        return formats.set_object(
            text, formats.guess_format(path), ("ask",), "trust", {child: trust}
        ).encode()
    except UnsafeEditError as problem:
        raise _refused(
            f"{path} {problem}", f"Add to ask.trust.{child} by hand: {', '.join(names)}."
        ) from None


def _write_trust(workspace: Workspace, config: bytes | None) -> None:
    if config is not None:
        write(_config_path(workspace), config, 0o644)


def _config_path(workspace: Workspace) -> str:
    return workspace.source or os.path.join(workspace.folder, JSON_NAME)


def find_consent_rules(invocation: Invocation, child: str) -> ConsentRules:
    """Return which subtools of a child need consent. Starts the child if its subtools are not known."""
    try:
        workspace = load_originals(invocation.options, child)
        offered = run_loop(lambda: _offered_subtools(invocation, workspace, child))
    except SwitchboardError as problem:
        return ConsentRules(unlisted=problem.failure.message)
    settings = workspace.config.ask
    trust = {
        rule: access(Expose(allow=[rule]), governed=True).permits for rule in settings.trust.get(child, [])
    }
    grave = [subtool.name for subtool in offered if needs_consent(subtool, settings.confirm)]
    trusted = [name for name in grave if any(permits(name) for permits in trust.values())]
    return ConsentRules(
        consent=[name for name in grave if name not in trusted],
        trusted=trusted,
        unmatched=[
            rule for rule, permits in trust.items() if not any(permits(subtool.name) for subtool in offered)
        ],
    )


async def _offered_subtools(invocation: Invocation, workspace: Workspace, child: str) -> list[Offered]:
    async with (
        open_switchboard(invocation, workspace) as switchboard,
        connected(switchboard.gateway) as client,
    ):

        async def connect() -> LocalClient:
            return client

        return await SuiteToolbox(switchboard.gateway, child, connect).offered()


def _consent_lines(child: str, rules: ConsentRules) -> list[str]:
    if rules.unlisted:
        return [f"The subtools that need consent cannot be listed: {rules.unlisted}"]
    lines = []
    if rules.consent:
        lines.append(f"A person confirms each call of: {', '.join(rules.consent)}.")
        lines.append(f"`switchboard wrap {quote(child)} --trust NAME` lets a subtool run without that.")
    else:
        lines.append("None of its subtools needs consent.")
    if rules.trusted:
        lines.append(f"Trusted, and run without consent: {', '.join(rules.trusted)}.")
    if rules.unmatched:
        lines.append(f"ask.trust.{child} names what the child does not have: {', '.join(rules.unmatched)}.")
    return lines


def role_text(workspace: str, spec: ChildSpec) -> str:
    """Return the initial role of the model; the checksum in its first line reveals later edits."""
    own = read_descriptions(workspace).get(spec.name) or ChildDescription()
    text = own.claude
    server = None if text else find_known_server(spec.command, spec.args, spec.url)
    if server is not None:
        text = server.claude
    if not text:
        description = spec.switchboard_description or own.switchboard or spec.description
        text = f"Your role is to carry out requests with the MCP server '{spec.name}'. {description}"
    body = f"{text.strip()}\n"
    return f"{HEAD.format(child=spec.name, sum=_checksum(body))}\n\n{body}"


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _is_untouched(role: bytes) -> bool:
    head, _, body = role.decode("utf-8", "replace").partition("\n\n")
    return head.startswith("<!--") and head.endswith(f"({_checksum(body)}) -->")


def _workspace(invocation: Invocation) -> Workspace:
    return load_workspace(project_folder(invocation.options), invocation.options.config, os.environ)


def _check_wrappable(path: str, spec: ChildSpec, *, in_place: bool) -> None:
    """Raise if the child could not be restored later."""
    original = os.path.join(os.path.dirname(path), ORIGINAL)
    if in_place and os.path.islink(path):
        raise _refused(f"{path} is a symbolic link. Wrap the child where its file really is.")
    if os.path.lexists(original):
        raise _refused(f"{original} already exists, and would be lost.", "Move it away, then try again.")
    if not in_place and os.path.lexists(path):
        raise _refused(f"{path} already exists, and would be lost.", "Move it away, then try again.")
    if os.sep in spec.name or spec.name in (os.curdir, os.pardir):
        raise _refused(f"The name '{spec.name}' cannot be a folder name.", "Rename the child.")


def _entry(
    invocation: Invocation, workspace: Workspace, spec: ChildSpec, folder: str, wraps: str, *, keeps: bool
) -> bytes:
    """Return the file of the wrapper. Its paths are relative to it, so the workspace can be moved."""
    command = [invocation.args.command] if invocation.args.command else own_command()
    args = [*command[1:], "wrapper", spec.name, "--workspace", os.path.relpath(workspace.folder, folder)]
    if keeps:
        args.append(PASSTHROUGH)
    if invocation.options.config is not None:
        args += ["--config", os.path.relpath(workspace.source, folder)]
    entry: dict[str, object] = {"name": spec.name}
    if spec.description:
        entry["description"] = spec.description
    if spec.switchboard_description:
        entry["switchboardDescription"] = spec.switchboard_description
    entry["type"] = "stdio"
    entry["command"] = {"cmd": command[0], "args": [*args, "--log-level", "info"]}
    entry["rpcTimeoutMs"] = workspace.config.ask.timeout_ms + SPARE_MS
    entry["wraps"] = wraps
    return _rendered(entry)


def _rendered(entry: dict[str, object]) -> bytes:
    return json.dumps(entry, indent=2, ensure_ascii=False).encode() + b"\n"


def _keep_original(path: str, original: str) -> None:
    """Link the file under a second name, which keeps bytes, permissions and times."""
    os.makedirs(os.path.dirname(original), exist_ok=True)
    try:
        os.link(path, original)
    except OSError:  # not every file system has hard links
        shutil.copy2(path, original)


def _write_new(path: str, text: str) -> bool:
    """Write a new file; return False if one exists already."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _remove(folder: str) -> None:
    os.unlink(os.path.join(folder, FILE))
    _remove_role(folder)
    with suppress(OSError):
        os.rmdir(folder)


def _remove_role(folder: str) -> None:
    """Delete the role file if it is unedited."""
    path = os.path.join(folder, ROLE_FILE)
    with suppress(FileNotFoundError):
        with open(path, "rb") as file:
            untouched = _is_untouched(file.read())
        if untouched:
            os.unlink(path)


def _wrapped_lines(spec: ChildSpec, folder: str, kept: list[str]) -> list[str]:
    role_line = f"{os.path.join(folder, ROLE_FILE)} describes it to the model" + (
        " (it already existed, and is kept)." if kept else "."
    )
    return [
        f"Child '{spec.name}' now takes requests in sentences: call its subtool `{ASK_SUBTOOL}`.",
        role_line,
        f"`switchboard unwrap {quote(spec.name)}` restores everything.",
    ]


def _show(invocation: Invocation, done: WrapReport, words: list[str]) -> None:
    if invocation.as_json:
        invocation.console.out.json(done)
        return
    for word in words:
        invocation.console.out.line(word)


def _refused(message: str, hint: str = "") -> SwitchboardError:
    return refused("wrap_refused", message, hint=hint)
