"""The `requestState` of a question to a stateless host: signed, so that it is valid after a restart.

It names the call, the client, the rule and the time by which the answer must come. The host repeats the call with the
user's answer and this state; nothing is stored meanwhile.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

PREFIX = "switchboard-gate:"
_MAC_BYTES = 32
_TIME_BYTES = 8
# The question about a program has a digest in place of the number of a rule.
_RULE_BYTES = 16
_HEAD_BYTES = _TIME_BYTES + _RULE_BYTES


class StateSigner:
    """Issues and checks states. `key` is the user's own."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def issue(self, call: bytes, principal: str, rule: int, expires_at: float) -> str:
        """Return the state for a rule's question about a call with this fingerprint, until a time of the wall clock."""
        head = int(expires_at).to_bytes(_TIME_BYTES, "big") + rule.to_bytes(_RULE_BYTES, "big", signed=True)
        return PREFIX + urlsafe_b64encode(head + self._sign(call, principal, head)).decode()

    def rule_of(self, state: str, call: bytes, principal: str, now: float) -> int | None:
        """Return the rule of a state that was issued for this call of this principal; None if not, or expired."""
        try:
            data = urlsafe_b64decode(state.removeprefix(PREFIX))
        except ValueError:
            return None
        head, mac = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
        valid = (
            len(mac) == _MAC_BYTES
            and hmac.compare_digest(mac, self._sign(call, principal, head))
            and now < int.from_bytes(head[:_TIME_BYTES], "big")
        )
        return int.from_bytes(head[_TIME_BYTES:], "big", signed=True) if valid else None

    def _sign(self, call: bytes, principal: str, head: bytes) -> bytes:
        # Each part has a fixed length, so none can be taken for another.
        parts = head + sha256(principal.encode()).digest() + sha256(call).digest()
        return hmac.digest(self._key, parts, "sha256")


def is_gate_state(state: str | None) -> bool:
    """Return True if a state looks like one of ours."""
    return state is not None and state.startswith(PREFIX)
