#!lua
-- Gives one reservation back, if and only if exactly that reservation is held; with an event, also acknowledges that.
--
-- KEYS   1 sale, 2 buyers   as in admit.lua
--        3 events           only where an event is refused that did not become an order
-- ARGV   1 user, 2 "qty:orderNo" or "qty:orderNo:revision", 3 qty, 4 generation of the user's next order, 0 to forget
--        the user, 5 epoch, or '' for whichever is in force
--        6 consumer that judged the event, 7 the event's id
-- Reply  { epoch, returns } of the stock since then; false when there was nothing to give back
--
-- The condition makes it safe to repeat, and safe after a failover that lost the reservation. A sale that was never
-- installed gets no units: it does not know the reservation. An event that the consumer has not claimed any more is
-- somebody else's to judge, and its reservation stays: given back first and judged again, it could become an order
-- without units.

if KEYS[3] then
  local claimed = redis.pcall('XPENDING', KEYS[3], 'orders', ARGV[7], ARGV[7], 1)
  if claimed.err and not string.find(claimed.err, '^NOGROUP') then
    return claimed
  end
  if not claimed[1] or claimed[1][2] ~= ARGV[6] then
    return false
  end
end

local function give_back()
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
end

local since = give_back()
if KEYS[3] then
  redis.call('XACK', KEYS[3], 'orders', ARGV[7])
  redis.call('XDEL', KEYS[3], ARGV[7])
end
return since
