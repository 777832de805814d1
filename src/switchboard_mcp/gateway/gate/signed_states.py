"""The `requestState` of a question to a stateless host: signed, so that it is valid after a restart.

It names the call, the client and the time by which the answer must come. The host repeats the call with the user's
answer and this state; nothing is stored meanwhile.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

PREFIX = "switchboard-gate:"
_MAC_BYTES = 32
_TIME_BYTES = 8


class StateSigner:
    """Issues and checks states. `key` is the user's own."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, call: bytes, principal: str, expires_at: float) -> str:
        """Return the state for a call, given its fingerprint, until a time of the wall clock."""
        until = int(expires_at).to_bytes(_TIME_BYTES, "big")
        return PREFIX + urlsafe_b64encode(until + self._sign(call, principal, until)).decode()

    def is_valid(self, state: str, call: bytes, principal: str, now: float) -> bool:
        """Return True if the state was issued for this call of this principal, and has not expired."""
        try:
            data = urlsafe_b64decode(state.removeprefix(PREFIX))
        except ValueError:
            return False
        until, mac = data[:_TIME_BYTES], data[_TIME_BYTES:]
        return (
            len(mac) == _MAC_BYTES
            and hmac.compare_digest(mac, self._sign(call, principal, until))
            and now < int.from_bytes(until, "big")
        )

    def _sign(self, call: bytes, principal: str, until: bytes) -> bytes:
        # Each part has a fixed length, so none can be taken for another.
        parts = until + sha256(principal.encode()).digest() + sha256(call).digest()
        return hmac.digest(self._key, parts, "sha256")


def is_gate_state(state: str | None) -> bool:
    """Return True if a state looks like one of ours."""
    return state is not None and state.startswith(PREFIX)
