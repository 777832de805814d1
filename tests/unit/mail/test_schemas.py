from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec

from switchboard_mcp.mail.messages import ACTIONS, MailMessage, Receipt
from switchboard_mcp.mail.store.filenames import Stem
from switchboard_mcp.mail.store.signing import sign
from tests.cases import each_case
from tests.conftest import published_schema

# As in the protocol's own document.
MESSAGE: dict[str, Any] = {
    "id": "msg_1735689600000_k3j2h1",
    "action": "delegate_task",
    "sender": "lead",
    "recipient": "coder-1",
    "payload": "Fix the parser.",
    "replyTo": "msg_1735689500000_a1b2c3",
    "metadata": {"any": ["thing", 1]},
    "team": "alpha",
    "persona": "You write code.",
    "createdAt": "2025-01-01T00:00:00.000Z",
}
RECEIPT: dict[str, Any] = {
    "id": "receipt_msg_1735689600000_k3j2h1",
    "inReplyTo": "msg_1735689600000_k3j2h1",
    "status": "delivered",
    "summary": "Message delivered to 'coder-1' inbox",
    "processedAt": "2025-01-01T00:00:00.000Z",
    "error": None,
}


def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(published_schema(name))


@each_case(("name", "example", "shape"), [("message", MESSAGE, MailMessage), ("receipt", RECEIPT, Receipt)])
def test_the_documents_own_examples_fit_and_keep_every_key(
    name: str, example: dict[str, Any], shape: type[msgspec.Struct]
) -> None:
    validator(name).validate(example)
    assert json.loads(msgspec.json.encode(msgspec.convert(example, shape))) == example
    assert validator(name).is_valid({**example, "unheard-of": 1}) is False


def test_files_of_the_mail_server_fit_the_schema() -> None:
    message = msgspec.convert({**MESSAGE, "metadata": {"verified": True, "priority": "high"}}, MailMessage)
    validator("message").validate(json.loads(sign(b"key", Stem(1, "0" * 16), message)))


def test_there_are_five_actions() -> None:
    assert [each["const"] for each in published_schema("action")["oneOf"]] == list(ACTIONS)
    assert validator("message").is_valid({**MESSAGE, "action": "rm"}) is False
