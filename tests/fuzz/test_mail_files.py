"""Whatever is in a file that is dropped into a mailbox, it becomes a valid message or is refused with a reason."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard_mcp.errors import Failure
from switchboard_mcp.mail.messages import MAX_METADATA_BYTES, MAX_PAYLOAD_BYTES, MailMessage
from switchboard_mcp.mail.store import message_validation
from tests.fuzz.driver import fuzz
from tests.fuzz.grammar import encoded, mutated, near, sometimes, texts, values

pytestmark = pytest.mark.soak("fuzz")

NOW = "2026-01-01T00:00:00Z"
message = sometimes(
    {
        "id": near("msg_1", "msg_2"),
        "replyTo": texts,
        "team": texts,
        "persona": texts,
        "priority": near("high"),
        "ackBy": near(NOW),
        "createdAt": near(NOW),
        "idempotencyKey": texts,
        "metadata": near({"verified": True, "seal": "x", "attachment": "y"}, {"priority": "low"}),
        "sender": near("ada", "Ada 1", "overseer"),
        "recipient": near("bob"),
        "action": near("status_update", "execute"),
        "payload": texts | values,
    }
).map(lambda some: {"sender": "ada", "recipient": "bob", "action": "status_update", "payload": "", **some})
files = st.one_of(encoded(message), encoded(message), mutated(encoded(message)), st.binary(max_size=300))
CPU_S = 0.1


@fuzz(300)
@given(files, st.sampled_from(["msg_1.json", "msg_.json", "x.json", "msg_" + "a" * 200 + ".json"]))
def test_a_dropped_file_is_a_valid_message_or_refused_with_a_reason(data: bytes, name: str) -> None:
    began = time.thread_time()
    read = message_validation.from_file(data, "bob", name, NOW)
    assert time.thread_time() - began < CPU_S
    if isinstance(read, Failure):
        assert read.message.strip()
        return
    assert read.recipient == "bob"
    # Only the store may vouch for a sender, and only it writes seals.
    assert read.metadata["verified"] is False
    assert not {"seal", "attachment"} & read.metadata.keys()
    assert len(read.payload.encode("utf-8", "surrogatepass")) <= MAX_PAYLOAD_BYTES
    assert len(msgspec.json.encode(read.metadata)) <= MAX_METADATA_BYTES
    assert msgspec.json.decode(msgspec.json.encode(read), type=MailMessage) == read
