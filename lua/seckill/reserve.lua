#!lua
-- Gives a revived order its units again, whatever the window and the state.
--
-- KEYS   1 sale, 2 buyers   as in admit.lua
-- ARGV   1 user, 2 qty, 3 orderNo, 4 revision
-- Reply  HELD      the user holds it, now or before
--        TAKEN     the user holds another order
--        NOUNITS   too few units are left
--        NOSALE    no sale is in force
--
-- The revision that is recorded is the highest heard of: an earlier release of the same order that comes later finds
-- another one than it names and does nothing.

local sale = redis.call('HMGET', KEYS[1], 'epoch', 'left')
if not sale[1] then
  return 'NOSALE'
end

local has = redis.call('HGET', KEYS[2], ARGV[1])
if has and string.byte(has) ~= 126 then
  local qty, order, revision = string.match(has, '^(%d+):(%w+):?(%d*)$')
  if order ~= ARGV[3] then
    return 'TAKEN'
  end
  if (tonumber(revision) or 0) < tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[2], ARGV[1], qty .. ':' .. order .. ':' .. ARGV[4])
  end
  return 'HELD'
end

if tonumber(ARGV[2]) > tonumber(sale[2]) then
  return 'NOUNITS'
end
local held = ARGV[2] .. ':' .. ARGV[3]
if ARGV[4] ~= '0' then
  held = held .. ':' .. ARGV[4]
end
redis.call('HINCRBY', KEYS[1], 'left', -tonumber(ARGV[2]))
redis.call('HSET', KEYS[2], ARGV[1], held)

-- A shard that was retired is forgotten as a whole.
local forgotten = redis.call('PTTL', KEYS[1])
if forgotten > 0 then
  redis.call('PEXPIRE', KEYS[2], forgotten)
end
return 'HELD'
