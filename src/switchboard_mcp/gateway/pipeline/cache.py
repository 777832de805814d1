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
MAX_RESULTS = 512
MAX_RESULT_BYTES = 256 * 1024


class CachedResult(Struct, frozen=True, gc=False):
    """A result, and expires_at when it is good."""

    result: bytes
    expires_at: float


class ResultCache:
    """The answers of one suite. `age` grows whenever something may have changed."""

    def __init__(self, settings: Settings) -> None:
        self.generation = 0
        self._ttl_s = settings.ttl_ms / 1000
        self._subtools = access(Expose(allow=settings.subtools))
        self._results: OrderedDict[Hashable, CachedResult] = OrderedDict()

    def covers(self, subtool: str) -> bool:
        """Whether answers of this subtool are wanted; that it is read-only somebody else has to know."""
        return self._subtools.permits(subtool)

    def get(self, key: Hashable, now: float) -> bytes | None:
        """The answer that was kept, while it is good."""
        cached = self._results.get(key)
        if cached is None:
            return None
        if cached.expires_at < now:
            del self._results[key]
            return None
        return cached.result

    def put(self, key: Hashable, result: bytes, generation: int, now: float) -> None:
        """Keep an answer, unless something may have changed since it was asked for (at `age`)."""
        if generation != self.generation or len(result) > MAX_RESULT_BYTES or not _is_cacheable(result):
            return
        self._results[key] = CachedResult(result, now + self._ttl_s)
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def clear(self) -> None:
        """Something may have changed."""
        self.generation += 1
        self._results.clear()


def _is_cacheable(result: bytes) -> bool:
    """Whether it is an answer for good: no failure, no question back."""
    if is_error(result):
        return False
    return b'"resultType"' not in result or message_meta.result_type(Raw(result)) == "complete"
