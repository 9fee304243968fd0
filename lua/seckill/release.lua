#!lua
-- Gives one reservation back, if and only if exactly that reservation is held.
--
-- KEYS   1 sale, 2 buyers   as in admit.lua
-- ARGV   1 epoch, 2 user, 3 "qty:orderNo", 4 qty
-- Reply  1 given back, 0 nothing to give back
--
-- The condition makes it safe to repeat, and safe after a failover that lost the reservation.

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[3] then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('HINCRBY', KEYS[1], 'left', ARGV[4])
return 1
