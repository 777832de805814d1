"""Messages as bytes in a file, with a seal that tells the desk's own from what somebody put there.

The seal is a hash over the message and its name, keyed with a secret of the tree: what has no right one has not been
delivered, whatever it says about itself. It keeps honest programs honest; another program of the same user can read
the key, as it can read everything else. Owns the encoding; does not know folders.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

import msgspec

from switchboard_mcp.mail.messages import MAX_METADATA_BYTES, MAX_PAYLOAD_BYTES, MailMessage
from switchboard_mcp.mail.store.filenames import Stem

# Every byte of a payload may need six as an escape; the rest is small.
MAX_FILE_BYTES = 6 * MAX_PAYLOAD_BYTES + 2 * MAX_METADATA_BYTES + 65_536

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(MailMessage)


def sign(key: bytes, stem: Stem, message: MailMessage) -> bytes:
    """The content of the message's file."""
    bare = {name: value for name, value in message.metadata.items() if name != "seal"}
    plain = msgspec.structs.replace(message, metadata=bare)
    bare = {**bare, "seal": _signature(key, stem, plain)}
    return _encoder.encode(msgspec.structs.replace(message, metadata=bare)) + b"\n"


def decode(data: bytes) -> MailMessage | None:
    """The message in a file, whoever wrote it; None where it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def verify(key: bytes, stem: Stem, agent: str, data: bytes) -> MailMessage | None:
    """The message in a file of ours, without its seal; None where the seal is not right."""
    message = decode(data)
    if message is None or message.id != stem.id or message.recipient != agent:
        return None
    signature = message.metadata.pop("seal", None)
    if not isinstance(signature, str) or not compare_digest(
        signature.encode(), _signature(key, stem, message).encode()
    ):
        return None
    return message


def _signature(key: bytes, stem: Stem, message: MailMessage) -> str:
    return blake2b(f"{stem}\n".encode() + _encoder.encode(message), key=key, digest_size=16).hexdigest()
