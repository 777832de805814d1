"""The one taxonomy of what can go wrong.

Every failure a user, a model or a program can meet is a `Failure` value made from a row of `KINDS`. A row knows
whether trying again may help, what to do about it, and its JSON-RPC code outside a suite call. This module owns how a
failure looks on the wire; it does not know where failures come from.
"""

from __future__ import annotations

from typing import final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
KNOWN_FAILURE = -32000


class FailureKind(Struct, frozen=True):
    """What is true of every failure with this code."""

    retryable: bool
    hint: str
    rpc: int = KNOWN_FAILURE


KINDS: dict[str, FailureKind] = {
    "usage": FailureKind(False, "Run `switchboard --help` to see what can be asked for."),
    "config_invalid": FailureKind(False, "Correct the named key, then start again."),
    "unknown_tool": FailureKind(
        False, "Call tools/list and use one of the names it returns.", INVALID_PARAMS
    ),
    "bad_arguments": FailureKind(
        False, 'Send {"action":"introspect"} or {"action":"call","subtool":NAME,"args":{…}}.'
    ),
    "subtool_missing": FailureKind(False, 'Name the subtool: {"action":"call","subtool":NAME,"args":{…}}.'),
    "subtool_unknown": FailureKind(False, "Introspect the suite to see its subtools."),
    "subtool_denied": FailureKind(False, "It is not allowed here. Introspect the suite to see what is."),
    "cursor_invalid": FailureKind(False, "Introspect again without a cursor."),
    "variable_missing": FailureKind(
        False, "Set the variable where Switchboard is started, or give it a value in the file."
    ),
    "command_not_found": FailureKind(
        False,
        "Install the program, or write its whole path in the named file: hosts often have a short PATH.",
    ),
    "command_not_executable": FailureKind(
        False, "Make the program executable, or correct the command in the named file."
    ),
    "folder_not_found": FailureKind(False, "Create the folder, or correct cwd in the named file."),
    "transport_unsupported": FailureKind(False, "Install what the message names."),
    "child_start_timeout": FailureKind(
        True, "Run `switchboard doctor`, or raise timeouts.childSpawnMs (rpcMs for a first start)."
    ),
    "child_start_failed": FailureKind(
        True, "Read what the child wrote to stderr, or run `switchboard doctor`."
    ),
    "child_protocol": FailureKind(False, "Check that the command, or the url, is that of an MCP server."),
    "child_crashed": FailureKind(True, "Try again: the child is started anew on the next call."),
    "child_timeout": FailureKind(True, "Ask for less work at once, or raise rpcMs for this suite."),
    "rate_limited": FailureKind(True, "Wait for retryAfterMs, then try again."),
    "suite_busy": FailureKind(True, "Wait until calls under way have finished, then try again."),
    "middleware_refused": FailureKind(
        False, "A rule of this workspace is against it; the message says which."
    ),
    "middleware_failed": FailureKind(
        False, "This is a fault in the named middleware. The log has the details."
    ),
    "child_unhealthy": FailureKind(
        True, "Try again after retryAfterMs. `switchboard status` shows how it is; a restart of it may help."
    ),
    "child_unreachable": FailureKind(
        True, "Check that the server runs and that `url` is right, then try again."
    ),
    "child_unauthorized": FailureKind(False, "Check the child's `headers`: the server does not accept them."),
    "child_http_error": FailureKind(
        True, "Check that `url` is the address of an MCP server, or try again later."
    ),
    "child_answer_lost": FailureKind(True, "The call may have been carried out: look before you try again."),
    "child_session_lost": FailureKind(True, "Try again: the child is connected anew on the next call."),
    "child_backoff": FailureKind(True, "Wait for the given time, then try again."),
    "child_quarantined": FailureKind(
        True, "Read the last error, fix the child, then try again after the given time."
    ),
    "child_removed": FailureKind(False, "Call tools/list: the config has changed."),
    "child_busy": FailureKind(True, "Wait until calls under way have finished, then try again."),
    "child_isolation_full": FailureKind(
        True, "End a host session that no longer needs it, or raise isolationMax for this suite."
    ),
    "child_error": FailureKind(False, "Correct the arguments by the schema, or introspect this subtool."),
    "host_refused": FailureKind(False, "The child needs an answer that the host did not give."),
    "message_too_large": FailureKind(False, "Ask for less data at once."),
    "http_missing": FailureKind(
        False, "Install it: pip install 'switchboard-mcp[http]', or '.[http]' in its folder."
    ),
    "address_taken": FailureKind(False, "Choose another port: `switchboard serve --http PORT`."),
    "already_serving": FailureKind(False, "Connect to that one, or stop it first."),
    "governance_disabled": FailureKind(
        False,
        "Set SWITCHBOARD_MCP_ENABLED=true where Switchboard is started, once this workspace may be used.",
    ),
    "child_not_allowed": FailureKind(
        False, "Whoever approves children here runs `switchboard approve CHILD`."
    ),
    "launch_refused": FailureKind(
        False, "Fix what is named, then approve it again: `switchboard approve CHILD`."
    ),
    "launch_unresolved": FailureKind(
        False, "Install the program here, or configure it by its absolute path, then approve."
    ),
    "lock_invalid": FailureKind(
        False, "Take the file from git, or remove it and write it anew with `switchboard lock`."
    ),
    "child_not_locked": FailureKind(False, "Whoever may lock children here runs `switchboard lock CHILD`."),
    "tool_drifted": FailureKind(
        False,
        "Look at it with `switchboard lock --check`; `switchboard lock --accept CHILD` takes it as it is now.",
    ),
    "loose_permissions": FailureKind(False, "Take the rights of others away, then start again."),
    "audit_failed": FailureKind(
        True,
        "Make room, or make the folder writable: what cannot be recorded is refused (audit.onError).",
    ),
    "arguments_invalid": FailureKind(False, "Correct the arguments by the schema."),
    "mail_name_invalid": FailureKind(
        False, "Use lower-case letters, digits, - and _, at most 64; `coder 1` is taken as `coder-1`."
    ),
    "mail_recipient_unknown": FailureKind(
        False, "Use one of the nearest names, or let that agent register first."
    ),
    "mail_message_invalid": FailureKind(False, "Correct the named part of the message, then send it again."),
    "mail_too_large": FailureKind(False, "Put the content into a file of the workspace, and send its path."),
    "mail_not_found": FailureKind(False, "Look into the inbox, or search, for the ids there are."),
    "mail_lease_lost": FailureKind(
        False, "Stop working on it: the message may be somebody else's now. Claim again."
    ),
    "mail_not_stored": FailureKind(True, "Nothing was accepted. Fix what the message names, then try again."),
    "mail_unsafe": FailureKind(False, "Look at what is there, remove or fix it, then try again."),
    "mail_identity": FailureKind(False, "Act as the agent that you are."),
    "mail_not_registered": FailureKind(False, 'Call register_chat_agent {"name":…} first.'),
    "mail_name_taken": FailureKind(False, "Choose another name, or stop the other one first."),
    "mail_role_unknown": FailureKind(False, "Use one of the roles."),
    "mail_forbidden": FailureKind(False, "Ask the lead to do it."),
    "mail_team_unknown": FailureKind(False, "Use one of the nearest teams, or make it with create_team."),
    "mail_team_invalid": FailureKind(False, "Correct the team, then make it again."),
    "mail_workflow_unknown": FailureKind(False, "Call get_workflow_state to see which there are."),
    "mail_workflow_invalid": FailureKind(
        False, "Correct the named key of the definition, then start it again."
    ),
    "mail_workflow_refused": FailureKind(
        False, "Call get_workflow_state: it says the phase, who acts, what is needed."
    ),
    "mail_artifact_missing": FailureKind(
        False, "Write what is named into the workspace, then complete the phase again."
    ),
    "mail_agent_busy": FailureKind(
        True, "Wait until then, choose another agent, or have the workflow stopped (stop_workflow)."
    ),
    "mail_paths_reserved": FailureKind(
        True, "Work elsewhere, wait until then, or ask the holder to release them."
    ),
    "setup_refused": FailureKind(False, "Fix what is named, then run the command again."),
    "ask_no_model": FailureKind(
        False,
        "Set ANTHROPIC_API_KEY (or CLAUDE_API_KEY) where Switchboard is started, or use a host that lends its model "
        "(sampling).",
    ),
    "ask_model_rejected": FailureKind(
        False, "Check the key, and `model` and `baseUrl` under `ask` in the config."
    ),
    "ask_model_failed": FailureKind(True, "Try again in a while."),
    "ask_plan_invalid": FailureKind(
        True, "Say it in other words: one thing at a time, with all that it takes."
    ),
    "ask_impossible": FailureKind(False, "Introspect the suite to see what it is for, or use another."),
    "ask_unclear": FailureKind(False, "Ask again, with what is missing said."),
    "ask_limit": FailureKind(False, "Ask for less at once, or raise the named limit in the config."),
    "ask_unconfirmed": FailureKind(
        False,
        "Use a host that can ask its user (elicitation), or name the subtool under `ask.trust` in the config.",
    ),
    "ask_declined": FailureKind(False, "The user does not want it. Do not try it in another way."),
    "wrap_refused": FailureKind(False, "Fix what the message names, then try again."),
    "mail_agent_elsewhere": FailureKind(False, "Claim and settle it there; here it can only be written to."),
    "bus_unreachable": FailureKind(
        True, "Mail on this machine goes on. Check that Redis runs and that bus.url is right."
    ),
    "bus_full": FailureKind(True, "Give Redis more memory (maxmemory); what waits is shipped then."),
    "bus_refused": FailureKind(False, "Check user, password and ACL of bus.url: Redis does not accept them."),
    "bus_missing": FailureKind(
        False, "Install it with pip install 'switchboard-mcp[redis]', or '.[redis]' in its folder."
    ),
    "bus_busy": FailureKind(True, "Stop the other relay first: one relay serves a workspace folder."),
    "shutting_down": FailureKind(True, "Start Switchboard again."),
    "internal": FailureKind(
        False, "This is a fault in Switchboard. Its log has the details.", INTERNAL_ERROR
    ),
}


@final
class Failure(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One failure, ready to be shown. Optional fields are left out of the wire form when they do not help."""

    code: str
    message: str
    child: str | UnsetType = UNSET
    subtool: str | UnsetType = UNSET
    retryable: bool | UnsetType = UNSET
    hint: str | UnsetType = UNSET
    nearest: list[str] | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET
    stderr: list[str] | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET
    data: Raw | UnsetType = UNSET

    def with_subtool(self, subtool: str) -> Failure:
        """The same failure, met while calling `subtool`; its message says so."""
        message = self.message if f"'{subtool}'" in self.message else f"Subtool '{subtool}': {self.message}"
        return msgspec.structs.replace(self, subtool=subtool, message=message)


class SwitchboardError(Exception):
    """A failure on its way up. Raised only where a value cannot be returned."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure(
    code: str,
    message: str,
    *,
    child: str | UnsetType = UNSET,
    subtool: str | UnsetType = UNSET,
    hint: str = "",
    nearest: list[str] | None = None,
    schema: Raw | UnsetType = UNSET,
    stderr: list[str] | None = None,
    retry_after_ms: int | UnsetType = UNSET,
    data: Raw | UnsetType = UNSET,
) -> Failure:
    """Make a failure of a known kind; retryability and hint come from the kind unless given."""
    kind = KINDS[code]
    return Failure(
        code=code,
        # A file name that is no UTF-8 must not keep its own failure from being told.
        message=message if message.isascii() else message.encode("utf-8", "replace").decode(),
        child=child,
        subtool=subtool,
        retryable=kind.retryable,
        hint=hint or kind.hint,
        nearest=nearest or UNSET,
        schema=schema,
        stderr=stderr or UNSET,
        retry_after_ms=retry_after_ms,
        data=data,
    )


def refused(code: str, message: str, *, hint: str = "", nearest: list[str] | None = None) -> SwitchboardError:
    """The same, to be raised."""
    return SwitchboardError(failure(code, message, hint=hint, nearest=nearest))


def tool_result(problem: Failure) -> bytes:
    """The result of a suite call that failed: text for a model, `structuredContent.error` for a program."""
    text = as_text(problem)
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"error": problem},
            "isError": True,
        }
    )


def rpc_error(problem: Failure) -> bytes:
    """The JSON-RPC `error` member for a failure outside a suite call."""
    return msgspec.json.encode(
        {"code": KINDS[problem.code].rpc, "message": problem.message, "data": {"error": problem}}
    )


def as_text(problem: Failure) -> str:
    """The failure in sentences a person or a model can act on."""
    lines = [problem.message]
    if problem.nearest:
        lines.append("Nearest: " + ", ".join(problem.nearest))
    if problem.schema:
        lines.append("Schema: " + bytes(problem.schema).decode("utf-8", "replace"))
    if problem.stderr:
        lines.append("Last lines of stderr:")
        lines.extend("  " + line for line in problem.stderr)
    if problem.hint:
        lines.append(problem.hint)
    return "\n".join(lines)
