"""Messages of A2A clients, as mail."""

from __future__ import annotations

import json

import pytest
from msgspec import Raw

from switchboard_mcp.mail.messages import Draft
from switchboard_mcp.server.a2a.a2a_messages import A2aError, SendParams, convert, to_draft


def drafted(*parts: object, **metadata: object) -> Draft:
    message = {"messageId": "m1", "parts": parts, "metadata": metadata}
    params: SendParams = convert(Raw(json.dumps({"message": message}).encode()), SendParams)
    return to_draft(params.message)


def test_parts_of_every_kind_are_carried() -> None:
    found = drafted(
        {"text": "Look."},
        {"url": "https://example.com/a"},
        {"data": {"files": [1, None]}},
        {"data": None},
        {"raw": "aGk=", "filename": "a.txt"},
    )
    assert found.payload == 'Look.\n\nhttps://example.com/a\n\n{"files": [1, null]}\n\nnull'
    assert found.attachment is not None
    assert (found.attachment.name, found.attachment.data) == ("a.txt", b"hi")


@pytest.mark.parametrize(("subject", "kept"), [("Release", "Release"), ({"no": "text"}, None), (7, None)])
def test_a_subject_is_text(subject: object, kept: str | None) -> None:
    assert drafted({"text": "x"}, subject=subject, other=[[]]).metadata.get("subject") == kept


def test_a_part_needs_content() -> None:
    with pytest.raises(A2aError, match="one of text, raw, url and data"):
        drafted({"filename": "a"})
