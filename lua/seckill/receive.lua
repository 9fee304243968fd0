#!lua
-- Takes the units of a transfer in, once.
--
-- KEYS   1 sale, 2 transfers   as in send.lua
-- ARGV   1 epoch, 2 id of the transfer, 3 units
-- Reply  1 taken in, 0 taken in before, or another epoch or no sale is in force

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] or redis.call('HEXISTS', KEYS[2], '<' .. ARGV[2]) == 1 then
  return 0
end
redis.call('HINCRBY', KEYS[1], 'returns', 1)
redis.call('HINCRBY', KEYS[1], 'left', ARGV[3])
redis.call('HSET', KEYS[2], '<' .. ARGV[2], ARGV[3])

-- A shard that was retired is forgotten as a whole.
local forgotten = redis.call('PTTL', KEYS[1])
if forgotten > 0 then
  redis.call('PEXPIRE', KEYS[2], forgotten)
end
return 1
