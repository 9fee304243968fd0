-- The peer's whole sale. KEYS: stock, this user's flag, the count of orders. Returns 0 when sold out, -1 when the user has one
-- already, else the number of the order.
if redis.call('EXISTS', KEYS[2]) == 1 then
  return -1
end
if redis.call('DECR', KEYS[1]) < 0 then
  redis.call('INCR', KEYS[1])
  return 0
end
redis.call('SETNX', KEYS[2], 1)
redis.call('EXPIRE', KEYS[2], 86400)
return redis.call('INCR', KEYS[3])
