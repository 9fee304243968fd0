#!lua
-- Sends units of one shard to another shard of the lot; receive.lua takes them in there.
--
-- KEYS   1 sale        as in admit.lua
--        2 transfers   hash   ">id" -> "to:units" of what was sent, "<id" -> units of what was received
-- ARGV   1 id of the transfer, 2 shard it goes to, 3 units wanted, 4 most transfers a shard takes part in
-- Reply  units sent; for an id that was sent before, what was sent then
--
-- Between the two scripts the units belong to nobody: a crash there leaves them unsold until somebody receives them
-- under the same id.

local sent = redis.call('HGET', KEYS[2], '>' .. ARGV[1])
if sent then
  return tonumber(string.match(sent, ':(%d+)$'))
end
local sale = redis.call('HMGET', KEYS[1], 'state', 'left')
if sale[1] ~= 'open' or redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[4]) then
  return 0
end
local units = math.min(tonumber(ARGV[3]), tonumber(sale[2]))
if units > 0 then
  redis.call('HINCRBY', KEYS[1], 'left', -units)
  redis.call('HSET', KEYS[2], '>' .. ARGV[1], ARGV[2] .. ':' .. units)
end
return units
