#!lua
-- Puts the terms of a new epoch in force.
--
-- KEYS   1 sale, 2 buyers, 3 events   as in admit.lua
--        4 transfers                  as in send.lua
--        5 staged                     hash like buyers, filled beforehand with the buyers of the new epoch
-- ARGV   1 epoch, 2 start, 3 end, 4 limit, 5 left, 6 incarnation, 7 number of staged buyers
-- Reply  1 in force, 0 a sale of the same or a higher epoch is there, -1 the staged buyers are not complete
--
-- Buyers come in through a staging hash because a shard can have more of them than one call may carry. Events already
-- logged stay: they are the ledger's to judge. A shard that was retired is remembered again.

local current = tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0)
if current >= tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[5])
  return 0
end
local staged = tonumber(ARGV[7])
if redis.call('HLEN', KEYS[5]) ~= staged then
  return -1
end

redis.call('UNLINK', KEYS[2], KEYS[4])
if staged > 0 then
  redis.call('PERSIST', KEYS[5])
  redis.call('RENAME', KEYS[5], KEYS[2])
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'state', 'open', 'start', ARGV[2], 'end', ARGV[3],
  'limit', ARGV[4], 'left', ARGV[5], 'returns', '0', 'incarnation', ARGV[6])
redis.call('PERSIST', KEYS[1])

local made = redis.pcall('XGROUP', 'CREATE', KEYS[3], 'orders', '0', 'MKSTREAM')
if made.err and not string.find(made.err, '^BUSYGROUP') then
  return made
end
redis.call('PERSIST', KEYS[3])
return 1
