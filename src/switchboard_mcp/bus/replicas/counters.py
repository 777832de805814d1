"""Counters that the replicas of one server share in Redis: rate-limit tokens per suite, and quarantined children.

Every key expires by itself, by the clock of Redis. Not aware of what waits for the answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.sections import BusSettings

# Redis answers in milliseconds; after this long it is considered unreachable, and calls proceed without it.
REPLICA_TIMEOUT_S = 1.0
# rate keys | per key: calls per minute, burst, tokens requested. Returns per key: tokens granted, and the milliseconds
# until the next token.
# A key expires when its bucket is full again, so its remaining TTL, less the stored fraction of a millisecond, is the
# debt. This needs no TIME command, which a restricted ACL user may not call, and stores no timestamp.
TAKE = """
local grants = {}
for at, key in ipairs(KEYS) do
  local each = 60000 / tonumber(ARGV[3 * at - 2])
  local most, wanted = tonumber(ARGV[3 * at - 1]), tonumber(ARGV[3 * at])
  local debt = redis.call('PTTL', key)
  local fraction = redis.pcall('GET', key)
  fraction = type(fraction) == 'string' and tonumber(fraction) or -1
  -- Any other value was not written by this script, and is replaced.
  debt = debt > 0 and fraction >= 0 and fraction < 1 and debt - fraction or 0
  debt = math.min(debt, most * each)
  local granted = math.min(wanted, math.floor(most - debt / each + 1e-6))
  if granted > 0 then
    debt = debt + granted * each
    local whole = math.ceil(debt)
    redis.call('SET', key, whole - debt, 'PX', whole)
  end
  grants[at] = {granted, math.max(0, math.ceil(debt - (most - 1) * each))}
end
return grants
"""


class TokenRequest(Struct, frozen=True):
    """A request for tokens of one rate limit."""

    key: str
    calls_per_minute: int
    burst: int
    count: int


class ReplicaCounters(BusClient):
    """The shared counters of one workspace."""

    def __init__(self, settings: BusSettings) -> None:
        super().__init__(settings, answer_timeout_s=REPLICA_TIMEOUT_S)
        self._take = self._redis.register_script(TAKE)

    async def take_tokens(self, requests: Sequence[TokenRequest]) -> list[tuple[int, float]]:
        """Return for each request the number of tokens granted, and the seconds until the next one."""
        keys = [self.key("rate", request.key) for request in requests]
        args = [
            part for request in requests for part in (request.calls_per_minute, request.burst, request.count)
        ]
        async with self._guard():
            replies = await self._take(keys=keys, args=args)
        return [(int(granted), int(wait_ms) / 1000) for granted, wait_ms in replies]

    async def set_quarantine(self, child: str, notice: bytes, for_ms: int) -> None:
        """Quarantine a child for all replicas, replacing an earlier notice."""
        async with self._guard():
            await self._redis.set(self.key("quarantine", child), notice, px=for_ms)

    async def clear_quarantine(self, child: str) -> None:
        """End a quarantine, whichever replica began it."""
        async with self._guard():
            await self._redis.delete(self.key("quarantine", child))

    async def quarantine(self, child: str) -> tuple[bytes, float] | None:
        """Return the notice of a quarantined child and the seconds it remains in force."""
        key = self.key("quarantine", child)
        async with self._guard(), self._redis.pipeline(transaction=True) as pipe:
            pipe.get(key)
            pipe.pttl(key)
            notice, left_ms = await pipe.execute(raise_on_error=False)
            if isinstance(left_ms, Exception):
                raise left_ms
        if isinstance(notice, Exception):  # not a string
            self.malformed.report(key, str(notice))
            return None
        return (notice, left_ms / 1000) if notice is not None and left_ms > 0 else None
