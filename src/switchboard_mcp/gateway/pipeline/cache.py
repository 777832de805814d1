"""Answers of read-only subtools that may be given again, where the config asks for it.

An answer is kept for the principal who got it, and for a child that is not shared, for its host. Any call that is not
known to be read-only empties the cache of the suite, when it begins and when it ends. Failures are never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from msgspec import Raw, Struct

from switchboard_mcp.config.models import Expose
from switchboard_mcp.config.sections import CacheSettings as Settings
from switchboard_mcp.middleware import is_error
from switchboard_mcp.policy.access import access
from switchboard_mcp.protocol import message_meta

# Enough for what an agent asks again and again; nobody's memory is filled by it.
MOST_ANSWERS = 512
MOST_ANSWER_BYTES = 256 * 1024


class CachedResult(Struct, frozen=True, gc=False):
    """A result, and until when it is good."""

    result: bytes
    until: float


class ResultCache:
    """The answers of one suite. `age` grows whenever something may have changed."""

    def __init__(self, settings: Settings) -> None:
        self.age = 0
        self._ttl_s = settings.ttl_ms / 1000
        self._wanted = access(Expose(allow=settings.subtools))
        self._answers: OrderedDict[Hashable, CachedResult] = OrderedDict()

    def covers(self, subtool: str) -> bool:
        """Whether answers of this subtool are wanted; that it is read-only somebody else has to know."""
        return self._wanted.permits(subtool)

    def get(self, key: Hashable, now: float) -> bytes | None:
        """The answer that was kept, while it is good."""
        kept = self._answers.get(key)
        if kept is None:
            return None
        if kept.until < now:
            del self._answers[key]
            return None
        return kept.result

    def put(self, key: Hashable, result: bytes, age: int, now: float) -> None:
        """Keep an answer, unless something may have changed since it was asked for (at `age`)."""
        if age != self.age or len(result) > MOST_ANSWER_BYTES or not _is_plain(result):
            return
        self._answers[key] = CachedResult(result, now + self._ttl_s)
        if len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)

    def clear(self) -> None:
        """Something may have changed."""
        self.age += 1
        self._answers.clear()


def _is_plain(result: bytes) -> bool:
    """Whether it is an answer for good: no failure, no question back."""
    if is_error(result):
        return False
    return b'"resultType"' not in result or message_meta.result_type(Raw(result)) == "complete"
