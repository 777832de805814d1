"""A cache for the results of read-only subtools, if the config asks for one.

Results are cached per principal, and per host for a child that is not shared. Any call that is not known to be
read-only clears the suite's cache when it begins and when it ends. Failures are never cached.
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

# Enough for what an agent repeats, and at most 128 MiB per suite.
MAX_RESULTS = 512
MAX_RESULT_BYTES = 256 * 1024


class CachedResult(Struct, frozen=True, gc=False):
    """A result and the time at which it expires."""

    result: bytes
    expires_at: float


class ResultCache:
    """The cached results of one suite. `generation` grows whenever something may have changed."""

    def __init__(self, settings: Settings) -> None:
        self.generation = 0
        self._ttl_s = settings.ttl_ms / 1000
        self._subtools = access(Expose(allow=settings.subtools))
        self._results: OrderedDict[Hashable, CachedResult] = OrderedDict()

    def covers(self, subtool: str) -> bool:
        """Return whether results of this subtool may be cached. The caller checks that it is read-only."""
        return self._subtools.permits(subtool)

    def get(self, key: Hashable, now: float) -> bytes | None:
        """Return the cached result, or None if there is none or it has expired."""
        cached = self._results.get(key)
        if cached is None:
            return None
        if cached.expires_at < now:
            del self._results[key]
            return None
        return cached.result

    def put(self, key: Hashable, result: bytes, generation: int, now: float) -> None:
        """Cache a result, unless something may have changed since its call began at this `generation`."""
        if generation != self.generation or len(result) > MAX_RESULT_BYTES or not _is_cacheable(result):
            return
        self._results[key] = CachedResult(result, now + self._ttl_s)
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def clear(self) -> None:
        """Drop all results: something may have changed."""
        self.generation += 1
        self._results.clear()


def _is_cacheable(result: bytes) -> bool:
    """Return whether a result is final: no failure, and no request for input."""
    if is_error(result):
        return False
    return b'"resultType"' not in result or message_meta.result_type(Raw(result)) == "complete"
