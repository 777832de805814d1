"""The failures of Switchboard: one table of kinds, and their wire form.

Every failure that a user, a model or a program can see is a `Failure` created from a row of `KINDS`. The row says
whether retrying may help, what to do about it, and the JSON-RPC code outside a suite call.
"""

from __future__ import annotations

import re
from typing import final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
KNOWN_FAILURE = -32000
# Part of hints; the command itself shows what else to do.
RUN_DOCTOR = "run `switchboard doctor`"
# For a child's own error about its arguments.
CORRECT_ARGUMENTS = "Correct the arguments according to the schema, or introspect this subtool."
# For an error that a server reports in its handshake: it is an MCP server, and cannot work yet.
FIX_SERVER = "The server reports this itself. Fix what it names, such as a key or an address in its entry."
# Texts of failed network requests, as the libraries of servers write them.
_NETWORK = re.compile(
    r"\bE(?:NOTFOUND|AI_AGAIN|CONN(?:REFUSED|RESET|ABORTED)|HOSTUNREACH|NETUNREACH|TIMEDOUT)\b"
    r"|fetch failed|getaddrinfo|socket hang up|endpoint unreachable|network error|no such host|i/o timeout"
    r"|name or service not known|name resolution|nodename nor servname|could not resolve host"
    r"|network is unreachable|no route to host|connection (?:refused|reset|timed out|aborted|error)"
    r"|all connection attempts failed|max retries exceeded|connect(?:ion)? ?timeout|ConnectError",
    re.IGNORECASE,
)
# Such a text is found at the beginning of an error; a longer search would take time.
_SEARCHED_CHARS = 8_000


def is_network_failure(text: str) -> bool:
    """Return True if the text of a server's error is about a network request that failed."""
    return _NETWORK.search(text[:_SEARCHED_CHARS]) is not None


# Servers throw errors of their validation with any code.
_ARGUMENTS = re.compile(
    r"\b(?:invalid|missing|required|expected|unrecognized|unexpected|must|validation|not (?:a )?valid)\b[^.\n]{0,80}"
    r"\b(?:arguments?|params?|parameters?|input|property|properties|field|fields|key|keys|undefined|received)\b"
    r"|\b(?:arguments?|params?|parameters?|input|property|properties|field|fields)\b[^.\n]{0,80}"
    r"\b(?:invalid|missing|required|expected|unrecognized|unexpected|must|not valid)\b",
    re.IGNORECASE,
)


def is_about_arguments(text: str) -> bool:
    """Return True if the text of a server's error says that it refuses the arguments of a call."""
    return _ARGUMENTS.search(text[:_SEARCHED_CHARS]) is not None


def shell_word(text: str) -> str:
    """Return a name as a shell takes it, for a command in a hint."""
    from shlex import quote  # Not part of the serving path.

    return quote(text)


class FailureKind(Struct, frozen=True):
    """Properties of all failures with one code. `hint` says what to do."""

    retryable: bool
    hint: str
    rpc: int = KNOWN_FAILURE


KINDS: dict[str, FailureKind] = {
    "usage": FailureKind(False, "Run `switchboard --help` to see all commands."),
    "config_invalid": FailureKind(False, "Correct the named key, then restart."),
    "unknown_tool": FailureKind(
        False, "Call tools/list and use one of the names it returns.", INVALID_PARAMS
    ),
    "bad_arguments": FailureKind(
        False, 'Send {"action":"introspect"} or {"action":"call","subtool":NAME,"args":{…}}.'
    ),
    "subtool_missing": FailureKind(False, 'Name the subtool: {"action":"call","subtool":NAME,"args":{…}}.'),
    "subtool_unknown": FailureKind(False, "Introspect the suite to see its subtools."),
    "subtool_denied": FailureKind(
        False, "It is not allowed here. Introspect the suite to see the allowed subtools."
    ),
    "cursor_invalid": FailureKind(False, "Introspect again without a cursor."),
    "variable_missing": FailureKind(
        False,
        "Set the variable in the environment of Switchboard, store it with `switchboard secret set NAME`, or give it a "
        "default in the file.",
    ),
    "keyring_unavailable": FailureKind(
        False,
        "Unlock the system keyring, or store the value in a file: `switchboard secret set NAME --store file`.",
    ),
    "child_incomplete": FailureKind(False, "Add the missing key to the named file."),
    "command_not_found": FailureKind(
        False,
        "Install the program, or use its absolute path in the named file: hosts often have a short PATH.",
    ),
    "command_not_executable": FailureKind(
        False, "Make the program executable, or correct the command in the named file."
    ),
    "folder_not_found": FailureKind(False, "Create the folder, or correct cwd in the named file."),
    "transport_unsupported": FailureKind(False, "Install the package that the message names."),
    "child_start_timeout": FailureKind(True, f"Raise timeouts.childSpawnMs above that, or {RUN_DOCTOR}."),
    "child_start_failed": FailureKind(True, f"Read what the child wrote to stderr, or {RUN_DOCTOR}."),
    "sandbox_unavailable": FailureKind(
        False,
        "Run `switchboard sandbox show CHILD` to see what holds here; change the sandbox, or set `required` to false.",
    ),
    "child_protocol": FailureKind(False, "Check that the command or url is that of an MCP server."),
    "child_crashed": FailureKind(True, "Try again: the child is restarted on the next call."),
    "child_timeout": FailureKind(True, "Ask for less work at once, or raise rpcMs for this suite."),
    "rate_limited": FailureKind(True, "Wait for retryAfterMs, then try again."),
    "suite_busy": FailureKind(True, "Wait until calls in progress have finished, then try again."),
    "middleware_refused": FailureKind(False, "A rule of this workspace forbids it. The message says which."),
    "select_invalid": FailureKind(False, "Nothing was called. Correct `select`, or leave it out."),
    "result_unknown": FailureKind(False, "Call the subtool again."),
    "gate_denied": FailureKind(False, "Do not try it another way. The rules are in `gate` of the config."),
    "gate_declined": FailureKind(False, "The user declined. Do not try it another way."),
    "gate_waiting": FailureKind(
        True, "Ask the user to run `switchboard approvals`, then make the same call again."
    ),
    "program_refused": FailureKind(
        False,
        "Correct the named lines and run it again. Nothing of it has run; get names and types from `stubs`.",
    ),
    "program_failed": FailureKind(
        False, "Correct the program. The calls listed as made have been carried out."
    ),
    "program_limit": FailureKind(False, "Do less in one program, or raise the named limit in the config."),
    "program_unknown": FailureKind(False, "Call `list` to see the kept programs."),
    "program_not_locked": FailureKind(
        False, "Review the program, then run `switchboard lock` and commit the lock file."
    ),
    "programs_unavailable": FailureKind(True, "Call the subtools one by one."),
    "gate_unanswered": FailureKind(
        False,
        "Use a host that can ask its user (elicitation), or have the user allow it in `gate` of the config.",
    ),
    "middleware_failed": FailureKind(
        False, "This is a bug in the named middleware. The log has the details."
    ),
    "child_unhealthy": FailureKind(
        True, "Try again after retryAfterMs. `switchboard status` shows its health; restarting it may help."
    ),
    "child_unreachable": FailureKind(
        True, "Check that the server runs and that `url` is correct, then try again."
    ),
    "child_unauthorized": FailureKind(False, "Check the child's `headers`: the server rejects them."),
    "child_scope_missing": FailureKind(
        False, "Give the child's token more scopes at its service; other calls may work without."
    ),
    "child_http_error": FailureKind(
        True, "Check that `url` is the address of an MCP server, or try again later."
    ),
    "child_answer_lost": FailureKind(True, "The call may have been executed: check before you try again."),
    "broker_busy": FailureKind(True, "Close the sessions that use it, or add --force."),
    "interrupted": FailureKind(
        True, "Check if the call was carried out before you try again: Switchboard cannot tell."
    ),
    "child_session_lost": FailureKind(True, "Try again: the child is reconnected on the next call."),
    "child_backoff": FailureKind(True, "Wait for the given time, then try again."),
    "child_quarantined": FailureKind(
        True, "Read the last error, fix the child, then try again after the given time."
    ),
    "child_removed": FailureKind(False, "Call tools/list: the config has changed."),
    "child_busy": FailureKind(True, "Wait until calls in progress have finished, then try again."),
    "child_isolation_full": FailureKind(
        True, "End a host session that no longer needs it, or raise isolationMax for this suite."
    ),
    "child_error": FailureKind(False, "The server failed by itself: its message, or its log, says why."),
    "child_network_error": FailureKind(
        True,
        "The server could not reach a service that it needs. Check its network, proxy and addresses, then try again.",
    ),
    "host_refused": FailureKind(False, "The child needs a response that the host did not send."),
    "message_too_large": FailureKind(False, "Ask for less data at once."),
    "http_missing": FailureKind(False, "Install the extra `http` in the same way as Switchboard."),
    "address_taken": FailureKind(False, "Choose another port: `switchboard serve --http PORT`."),
    "already_serving": FailureKind(False, "Connect to that server, or stop it first."),
    "governance_disabled": FailureKind(
        False,
        "Set SWITCHBOARD_MCP_ENABLED=true in the environment of Switchboard to enable this workspace.",
    ),
    "settings_not_approved": FailureKind(
        False, "Ask the approver of this workspace to run `switchboard approve --settings`."
    ),
    "child_not_allowed": FailureKind(
        False, "Ask the approver of this workspace to run `switchboard approve CHILD`."
    ),
    "launch_refused": FailureKind(False, "Fix the named problem, then run `switchboard approve CHILD`."),
    "launch_unresolved": FailureKind(
        False, "Install the program, or configure its absolute path, then run `switchboard approve CHILD`."
    ),
    "lock_invalid": FailureKind(False, "Restore the file from git, or remove it and run `switchboard lock`."),
    "child_not_locked": FailureKind(False, "Run `switchboard lock CHILD`, if you may lock children here."),
    "tool_drifted": FailureKind(
        False,
        "Review it with `switchboard lock --check`, then accept it with `switchboard lock --accept CHILD`.",
    ),
    "loose_permissions": FailureKind(False, "Remove access for other users (chmod 700), then restart."),
    "audit_failed": FailureKind(
        True,
        "Free disk space, or make the folder writable: calls that cannot be recorded are refused (audit.onError).",
    ),
    "arguments_invalid": FailureKind(False, "Correct the arguments according to the schema."),
    "mail_name_invalid": FailureKind(
        False, "Use at most 64 lower-case letters, digits, - and _. `coder 1` becomes `coder-1`."
    ),
    "mail_recipient_unknown": FailureKind(
        False, "Use one of the nearest names, or have that agent register first."
    ),
    "mail_message_invalid": FailureKind(False, "Correct the named part of the message, then send it again."),
    "mail_too_large": FailureKind(False, "Put the content into a file in the workspace and send its path."),
    "mail_quota": FailureKind(True, "Try again when some messages are settled, or raise the named setting."),
    "mail_not_found": FailureKind(False, "Get valid ids from the inbox or a search."),
    "mail_lease_lost": FailureKind(
        False, "Stop working on it: another agent may have the message now. Claim again."
    ),
    "mail_claimed": FailureKind(False, "Send a message that corrects it: the recipient has it already."),
    "mail_not_stored": FailureKind(True, "Nothing was stored. Fix the named problem, then try again."),
    "mail_unsafe": FailureKind(False, "Inspect the named file, remove or fix it, then try again."),
    "mail_identity": FailureKind(False, "Act under your own agent name."),
    "mail_not_registered": FailureKind(False, 'Call register_chat_agent {"name":…} first.'),
    "mail_name_taken": FailureKind(False, "Choose another name, or stop the other agent first."),
    "mail_role_unknown": FailureKind(False, "Use one of the roles."),
    "mail_forbidden": FailureKind(False, "Ask the lead to do it."),
    "mail_team_unknown": FailureKind(False, "Use one of the nearest teams, or create it with create_team."),
    "mail_team_invalid": FailureKind(False, "Correct the team, then create it again."),
    "mail_workflow_unknown": FailureKind(False, "Call get_workflow_state to list the workflows."),
    "mail_workflow_invalid": FailureKind(
        False, "Correct the named key of the definition, then start it again."
    ),
    "mail_workflow_refused": FailureKind(
        False, "Call get_workflow_state for the current phase, its agent and its requirements."
    ),
    "mail_artifact_missing": FailureKind(
        False, "Write the named file into the workspace, then complete the phase again."
    ),
    "mail_agent_busy": FailureKind(
        True, "Wait until then, choose another agent, or stop the workflow with stop_workflow."
    ),
    "mail_paths_reserved": FailureKind(
        True, "Work on other files, wait until then, or ask the holder to release them."
    ),
    "setup_refused": FailureKind(False, "Fix the named problem, then run the command again."),
    "ask_no_model": FailureKind(
        False,
        "Set ANTHROPIC_API_KEY (or CLAUDE_API_KEY) in the environment of Switchboard, or use a host that "
        "lends its model (sampling).",
    ),
    "ask_model_rejected": FailureKind(
        False, "Check the key, and `model` and `baseUrl` under `ask` in the config."
    ),
    "ask_model_failed": FailureKind(True, "Try again later."),
    "ask_plan_invalid": FailureKind(
        True, "Rephrase the request: one task at a time, with all required details."
    ),
    "ask_impossible": FailureKind(False, "Introspect the suite to see what it can do, or use another."),
    "ask_unclear": FailureKind(False, "Ask again with the missing details."),
    "ask_limit": FailureKind(False, "Ask for less at once, or raise the named limit in the config."),
    "ask_unconfirmed": FailureKind(
        False,
        "Use a host that can ask its user (elicitation), or add the subtool to `ask.trust` in the config.",
    ),
    "ask_declined": FailureKind(False, "The user declined. Do not try it another way."),
    "wrap_refused": FailureKind(False, "Fix the named problem, then try again."),
    "bus_unreachable": FailureKind(
        True, "Local mail keeps working. Check that Redis runs and that bus.url is correct."
    ),
    "bus_full": FailureKind(True, "Give Redis more memory (maxmemory). Queued messages are sent then."),
    "bus_refused": FailureKind(False, "Check user, password and ACL of bus.url: Redis rejects them."),
    "bus_malformed": FailureKind(
        True, "A running relay moves such a key aside and goes on; nothing else may write to these keys."
    ),
    "bus_missing": FailureKind(False, "Install the extra `redis` in the same way as Switchboard."),
    "bus_busy": FailureKind(True, "Stop the other relay first: a workspace has only one."),
    "shutting_down": FailureKind(True, "Start Switchboard again."),
    "internal": FailureKind(False, "This is a bug in Switchboard. Its log has the details.", INTERNAL_ERROR),
}


@final
class Failure(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One failure. Unset optional fields are omitted from the wire form."""

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
        """Return the same failure as one of calling `subtool`; its message says so."""
        message = self.message if f"'{subtool}'" in self.message else f"Subtool '{subtool}': {self.message}"
        return msgspec.structs.replace(self, subtool=subtool, message=message)


class SwitchboardError(Exception):
    """Carries a failure as an exception, for code that cannot return it as a value."""

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
    """Create a failure of a known kind. Retryability and, by default, the hint come from the kind."""
    kind = KINDS[code]
    return Failure(
        code=code,
        # A file name that is not valid UTF-8 must not prevent its own failure from being encoded.
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
    """Create the exception for a failure of a known kind."""
    return SwitchboardError(failure(code, message, hint=hint, nearest=nearest))


def tool_result(problem: Failure) -> bytes:
    """Encode a failed suite call: text for the model, `structuredContent.error` for programs."""
    text = as_text(problem)
    return msgspec.json.encode(
        {
            "content": [{"type": "text", "text": text}],
            "structuredContent": {"error": problem},
            "isError": True,
        }
    )


def rpc_error(problem: Failure) -> bytes:
    """Encode the JSON-RPC `error` member for a failure outside a suite call."""
    return msgspec.json.encode(
        {"code": KINDS[problem.code].rpc, "message": problem.message, "data": {"error": problem}}
    )


def as_text(problem: Failure) -> str:
    """Format a failure as text for a person or a model."""
    lines = [problem.message]
    if problem.nearest:
        lines.append("Nearest: " + ", ".join(problem.nearest))
    if problem.schema:
        lines.append("Schema: " + bytes(problem.schema).decode("utf-8", "replace"))
    if problem.stderr:
        lines.append("Lines of stderr:")
        lines.extend("  " + line for line in problem.stderr)
    if problem.hint:
        lines.append(problem.hint)
    return "\n".join(lines)
