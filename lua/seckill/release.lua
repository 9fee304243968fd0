#!lua
-- Gives one reservation back, if and only if exactly that reservation is held.
--
-- KEYS   1 sale, 2 buyers   as in admit.lua; 3 events, where an event is refused
-- ARGV   1 user, 2 "qty:orderNo" or "qty:orderNo:revision", 3 qty, 4 generation of the user's next order, 0 to forget
--        the user, 5 epoch, or '' for whichever is in force, 6 consumer and 7 id of the event that is refused, if one is
-- Reply  { epoch, returns } of the stock since then; false when there was nothing to give back
--
-- A refused event is acknowledged in the same step, and only by the consumer that still has it claimed: one that came again
-- after its units were given back, or that somebody else wrote meanwhile, would be an order that holds nothing.
--
-- The condition makes it safe to repeat, and safe after a failover that lost the reservation. A sale that was never
-- installed gets no units: it does not know the reservation.

if ARGV[7] then
  local pending = redis.pcall('XPENDING', KEYS[3], 'orders', ARGV[7], ARGV[7], 1, ARGV[6])
  if pending.err and not string.find(pending.err, '^NOGROUP') then
    return pending
  end
  if pending.err or #pending == 0 then
    return false
  end
  redis.call('XACK', KEYS[3], 'orders', ARGV[7])
  redis.call('XDEL', KEYS[3], ARGV[7])
end
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
