"""What replicas of one server keep together in Redis: how often suites are called, which children are in quarantine.

Everything in it ends by itself, by the clock of Redis. Owns the keys and the sums; does not know what waits for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from switchboard_mcp.bus.redis_client import BusClient
from switchboard_mcp.config.sections import BusSettings

# Redis answers in milliseconds; beyond this it is taken for away, and calls go on without it.
REPLICA_TIMEOUT_S = 1.0
# rate keys | for each: calls a minute, how many at once, how many are wanted. For each: how many are granted, and after
# how many milliseconds there is room for one more.
# A key lives until its bucket is full again: the time it has left, less the part of a millisecond in it, is the debt.
# So no time is asked for, which a user of limited rights may not do, and none is written down.
TAKE = """
local told = {}
for at, key in ipairs(KEYS) do
  local each = 60000 / tonumber(ARGV[3 * at - 2])
  local most, wanted = tonumber(ARGV[3 * at - 1]), tonumber(ARGV[3 * at])
  local debt = redis.call('PTTL', key)
  debt = debt > 0 and debt - tonumber(redis.call('GET', key)) or 0
  debt = math.min(debt, most * each)
  local granted = math.min(wanted, math.floor(most - debt / each + 1e-6))
  if granted > 0 then
    debt = debt + granted * each
    local whole = math.ceil(debt)
    redis.call('SET', key, whole - debt, 'PX', whole)
  end
  told[at] = {granted, math.max(0, math.ceil(debt - (most - 1) * each))}
end
return told
"""


class TokenRequest(Struct, frozen=True):
    """Calls that somebody would like to make."""

    key: str
    calls_per_minute: int
    burst: int
    count: int


class ReplicaCounters(BusClient):
    """See the module."""

    def __init__(self, settings: BusSettings) -> None:
        super().__init__(settings, answer_timeout_s=REPLICA_TIMEOUT_S)
        self._take = self._redis.register_script(TAKE)

    async def take_tokens(self, requests: Sequence[TokenRequest]) -> list[tuple[int, float]]:
        """Of each request how much is granted, and the seconds until there is more."""
        keys = [self.key("rate", request.key) for request in requests]
        args = [
            part for request in requests for part in (request.calls_per_minute, request.burst, request.count)
        ]
        async with self._guard():
            told = await self._take(keys=keys, args=args)
        return [(int(granted), int(wait_ms) / 1000) for granted, wait_ms in told]

    async def set_quarantine(self, child: str, notice: bytes, for_ms: int) -> None:
        """Put a child into quarantine for all; where it was, this counts."""
        async with self._guard():
            await self._redis.set(self.key("quarantine", child), notice, px=for_ms)

    async def clear_quarantine(self, child: str) -> None:
        """End a quarantine, whoever began it."""
        async with self._guard():
            await self._redis.delete(self.key("quarantine", child))

    async def quarantine(self, child: str) -> tuple[bytes, float] | None:
        """What was said of a child in quarantine, and for how many seconds it holds."""
        key = self.key("quarantine", child)
        async with self._guard(), self._redis.pipeline(transaction=True) as pipe:
            pipe.get(key)
            pipe.pttl(key)
            said, left_ms = await pipe.execute()
        return (said, left_ms / 1000) if said is not None and left_ms > 0 else None
