"""The `requestState` of a question to a stateless host: signed, so that it is valid after a restart.

It names the workspace, the call, the client, the rule and the time by which the answer must come. The host repeats the
call with the user's answer and this state; nothing is stored meanwhile. An answer counts once.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

PREFIX = "switchboard-gate:"
_MAC_BYTES = 32
_TIME_BYTES = 8
# The question about a program has a digest in place of the number of a rule.
_RULE_BYTES = 16
_NONCE_BYTES = 8
_HEAD_BYTES = _TIME_BYTES + _RULE_BYTES + _NONCE_BYTES
# Answered states that have not expired; beyond it those that expire first are forgotten.
MAX_USED = 4_096


class StateSigner:
    """Issues and checks states of one workspace. `key` is the user's own."""

    def __init__(self, key: bytes, workspace: str = "") -> None:
        self._key = hmac.digest(key, os.fsencode(workspace), "sha256")
        self._used: dict[str, int] = {}

    def issue(self, call: bytes, principal: str, rule: int, expires_at: float) -> str:
        """Return the state for a rule's question about a call with this fingerprint, until a time of the wall clock."""
        head = int(expires_at).to_bytes(_TIME_BYTES, "big") + rule.to_bytes(_RULE_BYTES, "big", signed=True)
        head += os.urandom(_NONCE_BYTES)
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
            and state not in self._used
        )
        rule = head[_TIME_BYTES : _TIME_BYTES + _RULE_BYTES]
        return int.from_bytes(rule, "big", signed=True) if valid else None

    def use(self, state: str, now: float) -> None:
        """Take a valid state as answered: it does not count again."""
        expires_at = int.from_bytes(urlsafe_b64decode(state.removeprefix(PREFIX))[:_TIME_BYTES], "big")
        self._used = {used: until for used, until in self._used.items() if until > now}
        while len(self._used) >= MAX_USED:
            del self._used[min(self._used, key=self._used.__getitem__)]
        self._used[state] = expires_at

    def _sign(self, call: bytes, principal: str, head: bytes) -> bytes:
        # Each part has a fixed length, so none can be taken for another.
        parts = head + sha256(principal.encode()).digest() + sha256(call).digest()
        return hmac.digest(self._key, parts, "sha256")


def is_gate_state(state: str | None) -> bool:
    """Return True if a state looks like one of ours."""
    return state is not None and state.startswith(PREFIX)
