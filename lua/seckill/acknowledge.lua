#!lua
-- Acknowledges order events and removes them from the stream, so that what is in the stream is what is left to do.
--
-- KEYS   1 events   stream
-- ARGV   ids; unknown ones are ignored
-- Reply  number of events removed

if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
redis.call('XACK', KEYS[1], 'orders', unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV))
