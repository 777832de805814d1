"""Messages and parts of A2A 1.0, and the drafts and views of mail they stand for. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.conversations import attached_files
from switchboard_mcp.mail.messages import Draft, FileAttachment, MailMessage

# Codes of the specification, beyond those of JSON-RPC.
TASK_NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED, WRONG_CONTENT = -32001, -32002, -32003, -32004, -32005
NO_EXTENDED_CARD, WRONG_VERSION = -32007, -32009
INVALID_PARAMS, INTERNAL = -32602, -32603
CODES = {"mail_not_found": TASK_NOT_FOUND, "mail_claimed": NOT_CANCELABLE, "mail_forbidden": UNSUPPORTED}
MAX_KEY_CHARS = 200
MAX_SUBJECT_CHARS = 200
Id = Annotated[str, Meta(max_length=200)]


class A2aError(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Part(Struct, rename="camel", kw_only=True):
    """A part of a message: one of text, raw (base64), url and data."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: msgspec.Raw | UnsetType = UNSET
    filename: str = ""
    media_type: str = ""


class A2aMessage(Struct, rename="camel", kw_only=True):
    """A message of a client."""

    message_id: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARS)]
    parts: Annotated[list[Part], Meta(min_length=1, max_length=100)]
    role: Literal["ROLE_USER", "user"] = "ROLE_USER"
    context_id: Id = ""
    task_id: Id = ""
    metadata: dict[str, msgspec.Raw] = {}


class SendConfiguration(Struct, frozen=True, rename="camel", kw_only=True):
    """How a client wants its answer."""

    return_immediately: bool = False
    history_length: int | None = None


class SendParams(Struct, rename="camel", kw_only=True):
    """Parameters of SendMessage and SendStreamingMessage."""

    message: A2aMessage
    configuration: SendConfiguration = SendConfiguration()


class TaskParams(Struct, rename="camel", kw_only=True):
    """Parameters of the methods that name a task."""

    id: Annotated[str, Meta(min_length=1, max_length=200)]
    history_length: int | None = None


class ListParams(Struct, rename="camel", kw_only=True):
    """Parameters of ListTasks."""

    context_id: Id = ""
    status: str = ""
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50


def to_draft(message: A2aMessage) -> Draft:
    """Return the draft of a client's message. Raises `A2aError` for content that mail does not carry."""
    texts, attachment = [], None
    for part in message.parts:
        if part.raw is None:
            texts.append(_text_of(part))
        elif attachment is not None:
            raise A2aError(WRONG_CONTENT, "A message has at most one file. Pack several into one.")
        else:
            name = part.filename or "file"
            kind = part.media_type or attached_files.media_type(name)
            attachment = FileAttachment(
                name=name, media_type=kind, data=attached_files.decode_base64(part.raw)
            )
    subject = text_of(message, "subject")[:MAX_SUBJECT_CHARS]
    return Draft(
        action="delegate_task",
        payload="\n\n".join(texts),
        idempotency_key=f"a2a {message.message_id}",
        metadata={"a2a": True, **({"subject": subject} if subject else {})},
        attachment=attachment,
    )


def text_of(message: A2aMessage, name: str) -> str:
    """Return a text of the metadata; empty if there is none."""
    try:
        return msgspec.json.decode(message.metadata[name], type=str)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return ""


def send_arguments(draft: Draft, recipient: str) -> dict[str, object]:
    """Return the arguments with which the mail tool `send_message` would send a draft, as rules see them."""
    attachment = draft.attachment
    return {
        "recipient": recipient,
        "action": draft.action,
        "payload": draft.payload,
        **({"subject": draft.metadata["subject"]} if "subject" in draft.metadata else {}),
        **({"replyTo": draft.reply_to} if draft.reply_to else {}),
        **({"file": {"name": attachment.name}} if attachment is not None else {}),
    }


def _text_of(part: Part) -> str:
    if part.text is not None:
        return part.text
    if part.url is not None:
        return part.url
    if part.data is not UNSET:
        return bytes(part.data).decode("utf-8", "replace")
    raise A2aError(INVALID_PARAMS, "A part needs one of text, raw, url and data.")


def message_view(message: MailMessage, task: str, client: str) -> dict[str, object]:
    """Return a message of the mail as A2A shows it."""
    return {
        "messageId": message.id,
        "contextId": message.thread,
        "taskId": task,
        "role": "ROLE_USER" if message.sender == client else "ROLE_AGENT",
        "parts": [{"text": message.payload}],
        "metadata": {"from": message.sender},
    }


def to_error(problem: Failure) -> A2aError:
    """Return the error for a failure of the mail."""
    code = CODES.get(problem.code, INTERNAL if problem.retryable else INVALID_PARAMS)
    return A2aError(code, f"{problem.message} {problem.hint}".strip())


def convert(params: msgspec.Raw, shape: type[Any]) -> Any:
    """Return the parameters of a request. Raises `A2aError`."""
    try:
        return msgspec.json.decode(params or b"{}", type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise A2aError(INVALID_PARAMS, f"The parameters are not valid: {problem}") from None
