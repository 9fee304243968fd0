#!lua
-- Sets the state of the sale of exactly one epoch.
--
-- KEYS   1 sale   as in admit.lua
-- ARGV   1 epoch, 2 state: open | paused | closed
-- Reply  1 set, 0 another epoch or no sale is in force

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'state', ARGV[2])
return 1
