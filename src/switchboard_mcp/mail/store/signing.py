"""Encodes messages as files with a signature, which distinguishes delivered messages from dropped files.

The signature is a keyed hash (BLAKE2b) of the message and its name, stored as `metadata.seal`. A file without a valid
one has not been delivered, whatever it claims. This guards against mistakes, not attacks: another program of the same
user can read the key, as it can read everything else. Not aware of folders.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

import msgspec

from switchboard_mcp.mail.messages import MAX_METADATA_BYTES, MAX_PAYLOAD_BYTES, MailMessage
from switchboard_mcp.mail.store.filenames import Stem

# Each byte of a payload may take six as an escape; the rest is small.
MAX_FILE_BYTES = 6 * MAX_PAYLOAD_BYTES + 2 * MAX_METADATA_BYTES + 65_536

_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(MailMessage)


def sign(key: bytes, stem: Stem, message: MailMessage) -> bytes:
    """Encode a message file with its signature."""
    bare = {name: value for name, value in message.metadata.items() if name != "seal"}
    plain = msgspec.structs.replace(message, metadata=bare)
    bare = {**bare, "seal": _signature(key, stem, plain)}
    return _encoder.encode(msgspec.structs.replace(message, metadata=bare)) + b"\n"


def decode(data: bytes) -> MailMessage | None:
    """Decode a message file without checking its signature; None if invalid."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def verify(key: bytes, stem: Stem, agent: str, data: bytes) -> MailMessage | None:
    """Decode a message file and remove its signature; None if the signature is invalid."""
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
