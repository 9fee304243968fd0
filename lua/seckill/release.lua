#!lua
-- Gives one reservation back, if and only if exactly that reservation is held.
--
-- KEYS   1 sale, 2 buyers   as in admit.lua
-- ARGV   1 user, 2 "qty:orderNo" or "qty:orderNo:revision", 3 qty, 4 generation of the user's next order, 0 to forget
--        the user, 5 epoch, or '' for whichever is in force
-- Reply  { epoch, returns } of the stock since then; false when there was nothing to give back
--
-- The condition makes it safe to repeat, and safe after a failover that lost the reservation. A sale that was never
-- installed gets no units: it does not know the reservation.

local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch or (ARGV[5] ~= '' and ARGV[5] ~= epoch) then
  return false
end
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return false
end
local returns = redis.call('HINCRBY', KEYS[1], 'returns', 1)
redis.call('HINCRBY', KEYS[1], 'left', ARGV[3])
if ARGV[4] == '0' then
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[2], ARGV[1], '~' .. ARGV[4])
end
return { tonumber(epoch), returns }
