#!lua
-- Reads a roaming list from a place on.
--
-- KEYS   1 roaming list   list  as in append.lua
-- ARGV   1 epoch, 2 number, 3 most messages
-- Reply  { number of the last message, message … } those after the number, oldest first
--        {}  the list is of another epoch, does not reach back to the number, or does not reach it

local first, last = redis.call('LINDEX', KEYS[1], 0), redis.call('LINDEX', KEYS[1], -1)
if not first then
  return {}
end
local _, low = string.match(first, '^{"s":%d+,"e":(%d+),"n":(%d+),')
local epoch, high = string.match(last, '^{"s":%d+,"e":(%d+),"n":(%d+),')
local after = tonumber(ARGV[2])
if epoch ~= ARGV[1] or after + 1 < tonumber(low) or after > tonumber(high) then
  return {}
end
local start = after + 1 - low
local reply = redis.call('LRANGE', KEYS[1], start, start + ARGV[3] - 1)
table.insert(reply, 1, tonumber(high))
return reply
