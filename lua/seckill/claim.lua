#!lua
-- Hands order events to one consumer of the group `orders`.
--
-- KEYS   1 events   stream
-- ARGV   1 consumer, 2 most events wanted, 3 idle milliseconds after which another consumer's events may be taken
-- Reply  list of { id, { field, value, … } }: first what the consumer claimed and did not acknowledge, then what others
--        left idle, then new events
--
-- A stream whose group is gone gets it back from the beginning: every event still in it is unacknowledged.

local wanted = tonumber(ARGV[2])
local claimed, seen = {}, {}

local function take(entries)
  for _, entry in ipairs(entries or {}) do
    local id, fields = entry[1], entry[2]
    if not fields then
      -- Deleted from the stream by hand while pending: nothing is left to do for it.
      redis.call('XACK', KEYS[1], 'orders', id)
    elseif not seen[id] then
      seen[id] = true
      claimed[#claimed + 1] = entry
    end
  end
end

local function read(from)
  local reply = redis.pcall('XREADGROUP', 'GROUP', 'orders', ARGV[1], 'COUNT', wanted - #claimed, 'STREAMS', KEYS[1], from)
  if reply and reply.err then
    return reply
  end
  take(reply and reply[1] and reply[1][2])
end

if redis.call('EXISTS', KEYS[1]) == 0 then
  return claimed
end
local failed = read('0')
if failed then
  if not string.find(failed.err, '^NOGROUP') then
    return failed
  end
  redis.call('XGROUP', 'CREATE', KEYS[1], 'orders', '0')
end
if #claimed < wanted then
  take(redis.call('XAUTOCLAIM', KEYS[1], 'orders', ARGV[1], ARGV[3], '0', 'COUNT', wanted - #claimed)[2])
end
if #claimed < wanted then
  failed = read('>')
  if failed then
    return failed
  end
end
return claimed
