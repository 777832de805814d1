"""`switchboard mail hook`: reports unread mail to a host, in the format that host reads. Quiet and fast.

Decides which answer each host expects at which of its events. A hook must never break its host's turn: on any error it
prints nothing to stdout and exits with 0. `mail.hooks` decides what may be said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec

from switchboard_mcp.mail import hooks
from switchboard_mcp.mail.location import FOLDER, workspace_of
from switchboard_mcp.mail.messages import Unread
from switchboard_mcp.mail.presence import Presence
from switchboard_mcp.system.terminal_text import write_clean

# The reply format by host and event. `block` and `deny`: the turn continues, with the text as its next instruction.
# `plain`: the text itself, which opencode's plugin sends as the next prompt.
# `nested block`: the same, as VS Code reads it. `context`: the text is added to the prompt. Other events get no reply.
REPLY_FORMATS: dict[str, dict[str, str]] = {
    "claude-code": {"Stop": "block", "UserPromptSubmit": "context", "SessionStart": "context"},
    "codex": {"Stop": "block", "UserPromptSubmit": "context", "SessionStart": "context"},
    "vscode": {"Stop": "nested block", "SessionStart": "context"},
    "opencode": {"session.idle": "plain"},
    "gemini": {"AfterAgent": "deny", "BeforeAgent": "context", "SessionStart": "context"},
}
PROMPT_EVENTS = frozenset({"UserPromptSubmit", "BeforeAgent"})


def run_fast(arguments: Sequence[str]) -> int | None:
    """Run the command as hosts call it, without the argument parser; None if the arguments need it."""
    options = {"--as": "", "--host": "", "--workspace": ""}
    rest = list(arguments)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag not in options or not (equals or rest):
            return None
        options[flag] = value if equals else rest.pop(0)
    if options["--host"] not in ("", *REPLY_FORMATS):
        return None
    folder = options["--workspace"]
    return answer(options["--as"], options["--host"], os.path.abspath(folder) if folder else "")


def answer(agent: str, host: str, workspace: str, *, as_json: bool = False) -> int:
    """Print the reply; the exit code is always 0."""
    try:
        text = reply(agent, host, workspace, os.environ, sys.stdin.buffer, as_json=as_json)
    except Exception as problem:  # noqa: BLE001 - a host's turn is worth more than our fault
        write_clean(sys.stderr, f"switchboard mail hook: {problem!r}\n")
        return 0
    if text:
        write_clean(sys.stdout, text + "\n")
        sys.stdout.flush()
    return 0


def reply(
    agent: str,
    host: str,
    workspace: str,
    environ: Mapping[str, str],
    stdin: BinaryIO,
    *,
    as_json: bool = False,
) -> str:
    """Return the text for stdout; empty if nothing is unread or the host should not be notified now."""
    call = hooks.read_hook_input(stdin)
    host = host or detect_host(environ, call)
    here = call.cwd if os.path.isdir(call.cwd) else os.getcwd()
    workspace = workspace or workspace_of(environ, here)
    name = hooks.agent_of(workspace, agent, environ, call)
    if not name:
        return ""
    folder = os.path.join(workspace, FOLDER)
    form = REPLY_FORMATS[host].get(call.event, "") if host and call.event else "text"
    if call.event in PROMPT_EVENTS:
        hooks.stop_older_waiter(folder, name)
    if not form or not os.path.isdir(os.path.join(folder, "inbox", name)):
        return ""
    presence = Presence(folder)
    presence.record_activity(name)
    waiting = hooks.find_unread(workspace, name)
    if not waiting.count:
        return ""
    # A turn that continues because of this hook has the notice already.
    if form != "context" and (
        call.stop_hook_active or not _may_notify(form, folder, name, waiting.fingerprint)
    ):
        return ""
    presence.record_notified(name)
    text = hooks.format_notice(name, waiting)
    return format_reply(form, call.event, text) if not as_json else _json(name, waiting, text)


def _may_notify(form: str, folder: str, agent: str, mark: str) -> bool:
    return form == "text" or hooks.may_repeat(folder, agent, mark)


def detect_host(environ: Mapping[str, str], call: hooks.HookInput) -> str:
    """Guess which host runs the hook."""
    if environ.get("GEMINI_SESSION_ID") or call.event in ("AfterAgent", "BeforeAgent"):
        return "gemini"
    if call.turn_id:
        return "codex"
    return "claude-code" if environ.get("CLAUDECODE") or call.event else ""


def format_reply(form: str, event: str, text: str) -> str:
    """Return the text in the format of the host's event."""
    if form in ("text", "plain"):
        return text
    answer: dict[str, object] = {"decision": form, "reason": text}
    if form == "nested block":
        answer = {"hookSpecificOutput": {"hookEventName": event, "decision": "block", "reason": text}}
    elif form == "context":
        answer = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    return msgspec.json.encode(answer).decode()


def _json(agent: str, waiting: Unread, text: str) -> str:
    return msgspec.json.encode({"agent": agent, "unread": waiting.count, "text": text}).decode()
