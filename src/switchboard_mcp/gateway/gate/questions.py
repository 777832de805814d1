"""The question about one call, as the user sees it in the host and in `switchboard approvals`."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from switchboard_mcp.protocol import jsonrpc
from switchboard_mcp.redaction.arguments import mask_args
from switchboard_mcp.redaction.redactor import Redactor
from switchboard_mcp.suites import sanitize
from switchboard_mcp.suites.invisible_characters import find_invisible

# As much as a dialog shows.
MAX_ARGUMENT_CHARS = 6_000
MAX_CODE_CHARS = 6_000
# As much as a question may have anywhere: it is stored whole, and shown whole where it is answered.
MAX_WHOLE_CHARS = 1_000_000
MAX_NAME_CHARS = 200
# Limits for one text and for one list among many arguments.
MIN_VALUE_CHARS = 20
MAX_ITEMS = 20
ELICITATION = "elicitation/create"
# The user accepts or declines; there is nothing to fill in.
NOTHING_TO_FILL_IN = Raw(b'{"type":"object","properties":{}}')


class Question(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call that waits for a decision. `scope` says what an answer covers.

    The question about a program has its `code`, and as `arguments` the subtools that it can call. Both are whole: who
    answers sees every value and the end. `masked_arguments` and `masked_code` are for places that do not show
    everything, in which the question cannot be answered; they are empty if nothing is hidden.
    """

    child: str
    subtool: str
    arguments: str
    reason: str
    scope: str
    client: str = ""
    principal: str = ""
    code: str = ""
    masked_arguments: str = ""
    masked_code: str = ""

    @property
    def is_shown_whole(self) -> bool:
        """True if a dialog of a host shows all of it."""
        return not (self.masked_arguments or self.masked_code)

    def text(self, *, masked: bool = False) -> str:
        """Return the question in one paragraph for each part."""
        who = self.client or "the agent"
        arguments = (masked and self.masked_arguments) or self.arguments
        lines = [
            f"Allow {who} to run a program?"
            if self.code
            else f"Allow {who} to call '{self.subtool}' of '{self.child}'?",
            f"It can call: {arguments}" if self.code else f"Arguments: {arguments}",
        ]
        if self.code:
            lines.append(f"Code:\n{(masked and self.masked_code) or self.code}\n(end of the code)")
        if self.reason:
            lines.append(f"Asked because: {self.reason}")
        lines.append(self.scope)
        return "\n".join(lines)

    def elicitation(self) -> bytes:
        """Return the params with which a host asks its user."""
        return jsonrpc.encode({"message": self.text(), "requestedSchema": NOTHING_TO_FILL_IN})


class Subject(Struct, frozen=True):
    """The subject of a question, if not the call itself: its name in messages, who asks, and an alternative."""

    text: str
    asked_by: str
    remedy: str


def show_arguments(args: bytes, patterns: list[str], redactor: Redactor) -> tuple[str, str]:
    """Return the arguments whole for who answers, and as other places show them: empty if that is the same."""
    try:
        text = msgspec.json.format(args, indent=-1).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = args.decode("utf-8", "replace")
    whole = visible(text)
    masked = _masked_arguments(args, patterns, redactor)
    return whole, "" if masked == whole else masked


def show_code(code: str, redactor: Redactor) -> tuple[str, str]:
    """Return the code of a program whole, and as other places show it: empty if that is the same."""
    whole = visible(code)
    masked = sanitize.clean(redactor.redact_and_clip(whole, MAX_CODE_CHARS))
    if len(code) > MAX_CODE_CHARS:
        masked += f"\n… ({len(code) - MAX_CODE_CHARS:,} more characters)"
    return whole, "" if masked == whole else masked or "…"


def visible(text: str) -> str:
    r"""Return a text with escapes in place of what a person would not see. Raises `ValueError` if it is too long.

    >>> print(visible("rm\u200b -rf"))
    rm\u200b -rf
    """
    if len(text) > MAX_WHOLE_CHARS:
        raise ValueError(f"is longer than {MAX_WHOLE_CHARS:,} characters")
    if not find_invisible(text, "\n\t"):
        return text
    return "".join(
        char if char in "\n\t" or not find_invisible(char) else f"\\u{ord(char):04x}" for char in text
    )


def _masked_arguments(args: bytes, patterns: list[str], redactor: Redactor) -> str:
    """Return the arguments without secrets and hidden characters, clipped.

    Long texts are clipped first, so that none hides the arguments behind it.
    """
    masked = mask_args(patterns, args) if patterns else args
    try:
        text = msgspec.json.format(masked, indent=-1).decode()
        if len(text) > MAX_ARGUMENT_CHARS:
            decoded = msgspec.json.decode(masked)
            members = len(decoded) if isinstance(decoded, dict) else 1
            most = max(MAX_ARGUMENT_CHARS // (2 * max(members, 1)), MIN_VALUE_CHARS)
            text = msgspec.json.encode(_clip_texts(decoded, most, redactor)).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = masked.decode("utf-8", "replace")
    shown = sanitize.clean(redactor.redact_and_clip(visible(text[:MAX_WHOLE_CHARS]), MAX_ARGUMENT_CHARS))
    return shown if len(text) <= MAX_ARGUMENT_CHARS else f"{shown}… ({len(text):,} characters)"


def _clip_texts(value: object, most: int, redactor: Redactor) -> object:
    """Return a value whose texts have at most this many characters, and its lists a few items."""
    if isinstance(value, str) and len(value) > most:
        return f"{redactor.redact_and_clip(value, most)}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return {name: _clip_texts(item, most, redactor) for name, item in value.items()}
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        shown = [_clip_texts(item, most, redactor) for item in value[:MAX_ITEMS]]
        return [*shown, f"… {len(value) - MAX_ITEMS:,} more"]
    if isinstance(value, list):
        return [_clip_texts(item, most, redactor) for item in value]
    return value


def show_name(name: str) -> str:
    """Return a name that a peer chose, made safe to show to a person."""
    return sanitize.clean(name).replace("\n", " ")[:MAX_NAME_CHARS]


def scope_text(seconds: int | None) -> str:
    """Return what an answer covers.

    >>> scope_text(600)
    'Your answer counts for calls of this subtool for the next 10 min.'
    """
    if seconds == 0:
        return "Your answer counts for this call only."
    if seconds is None:
        return "Your answer counts for calls of this subtool in this session."
    minutes, rest = divmod(seconds, 60)
    return f"Your answer counts for calls of this subtool for the next {f'{seconds} s' if rest else f'{minutes} min'}."
