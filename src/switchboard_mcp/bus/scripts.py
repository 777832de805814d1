"""Lua scripts that Redis runs atomically. All keys of a workspace share a hash tag, so a cluster keeps them together.

Leases use the clock of Redis, so a machine with a wrong clock is treated like any other.
"""

from __future__ import annotations

# alive:<node> | token, machine, ttl ms. Returns 1 if the relay with this token holds the node now, 0 if another does.
# A relay on the same machine holds the folder's lock, so the previous holder there must be gone and can be replaced.
BEAT = """
local held = redis.call('GET', KEYS[1])
local mine = ARGV[1] .. ' ' .. ARGV[2]
local left = redis.call('PTTL', KEYS[1])
-- A relay writes "token machine" with this lease; anything else was not written by one.
local valid = held and string.match(held, '^[^ ]+ [^ ]+$') and left > 0 and left <= tonumber(ARGV[3])
if valid and held ~= mine then
  if string.sub(held, -#ARGV[2] - 1) ~= ' ' .. ARGV[2] then return 0 end
end
redis.call('SET', KEYS[1], mine, 'PX', ARGV[3])
return 1
"""

# alive:<node> | token, machine, ttl ms. Returns 1 if the relay with this token holds the node now, 0 if another does.
# A relay on the same machine holds the folder's lock, so the previous holder there must be gone and can be replaced.
BEAT = """
local held = redis.call('GET', KEYS[1])
local mine = ARGV[1] .. ' ' .. ARGV[2]
local left = redis.call('PTTL', KEYS[1])
-- A relay writes "token machine" with this lease; anything else was not written by one.
local valid = held and string.match(held, '^[^ ]+ [^ ]+$') and left > 0 and left <= tonumber(ARGV[3])
if valid and held ~= mine then
  if string.sub(held, -#ARGV[2] - 1) ~= ' ' .. ARGV[2] then return 0 end
end
redis.call('SET', KEYS[1], mine, 'PX', ARGV[3])
return 1
"""

# names, fence, changes | node, prefix of alive keys, name… Returns the owner of each name afterwards, as JSON.
# A name whose node has lost its lease can be claimed by another node, with a higher fence.
CLAIM = """
local function owner_of(held)
  local valid, claim = pcall(cjson.decode, held or '')
  if not valid or type(claim) ~= 'table' or type(claim.node) ~= 'string' then return nil, 0 end
  if not string.match(claim.node, '^%w+$') or #claim.node > 64 then return nil, 0 end
  local fence = claim.fence
  return claim.node, type(fence) == 'number' and fence > 0 and fence < 1e14 and fence or 0
end
local function next_fence()
  local fence = redis.pcall('INCR', KEYS[2])
  if type(fence) == 'number' and fence > 0 and fence < 1e14 then return fence end
  -- Not a counter: continue above every fence in use.
  fence = 0
  for _, held in ipairs(redis.call('HVALS', KEYS[1])) do
    local _, used = owner_of(held)
    fence = math.max(fence, used)
  end
  redis.call('SET', KEYS[2], string.format('%.0f', fence + 1))
  return fence + 1
end
local owners = {}
for at = 3, #ARGV do
  local held = redis.call('HGET', KEYS[1], ARGV[at])
  local owner = owner_of(held)
  if owner ~= ARGV[1] and (not owner or redis.call('EXISTS', ARGV[2] .. owner) == 0) then
    held = cjson.encode({node = ARGV[1], fence = next_fence()})
    redis.call('HSET', KEYS[1], ARGV[at], held)
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'kind', 'name', 'name', ARGV[at], 'node', ARGV[1])
  end
  owners[#owners + 1] = held
end
return owners
"""

# names, presence, changes | node, name… Removes the names that this node holds.
RELEASE = """
for at = 2, #ARGV do
  local valid, claim = pcall(cjson.decode, redis.call('HGET', KEYS[1], ARGV[at]) or '')
  if valid and type(claim) == 'table' and claim.node == ARGV[1] then
    redis.call('HDEL', KEYS[1], ARGV[at])
    redis.call('HDEL', KEYS[2], ARGV[at])
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'kind', 'name', 'name', ARGV[at], 'node', '')
  end
end
return #ARGV - 1
"""

# hash, changes | kind, key, value, revision that was read (0: none). Returns the value afterwards, and 1 if it is ours.
# A writer that read an older revision does not overwrite a newer one.
SHARE = """
local held = redis.call('HGET', KEYS[1], ARGV[2])
local valid, decoded = pcall(cjson.decode, held or '')
-- A value of another program counts as revision 0, so a valid one replaces it.
local revision = valid and type(decoded) == 'table' and tonumber(decoded.revision) or 0
if revision < 1 or revision ~= math.floor(revision) or revision >= 2^53 then revision = 0 end
if type(decoded) == 'table' and type(decoded.value) ~= 'table' and decoded.value ~= cjson.null then revision = 0 end
if revision ~= tonumber(ARGV[4]) then return {held, 0} end
redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 10000, '*', 'kind', ARGV[1], 'name', ARGV[2])
return {ARGV[3], 1}
"""

# stream | length to keep, event as JSON… Appends an entry for each event. One argument per event costs the
# sender's event loop 2 µs; one command per event costs 47 µs.
PUBLISH = """
for at = 2, #ARGV do
  local event = cjson.decode(ARGV[at])
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*',
    'v', event.v, 'id', event.id, 'kind', event.kind, 'event', ARGV[at])
end
return #ARGV - 1
"""
