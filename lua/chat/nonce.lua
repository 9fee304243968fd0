#!lua
-- Uses a nonce up.
--
-- KEYS   1 used   sorted set   nonce, until when it is remembered in milliseconds
-- ARGV   1 nonce, 2 now and 3 until in milliseconds, 4 most nonces kept
-- Reply  1 it is used for the first time, 0 it was used before
--
-- The clock is the caller's. The set is forgotten with its last nonce.

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[2])
if redis.call('ZADD', KEYS[1], 'NX', ARGV[3], ARGV[1]) == 0 then
  return 0
end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[4] - 1)
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if last[2] then
  redis.call('PEXPIRE', KEYS[1], math.max(last[2] - ARGV[2], 1))
end
return 1
