#!lua
-- Appends a notice for one party and numbers it.
--
-- KEYS   1 notices   stream   entry "number-0": k what the notice is about, n the notice
-- ARGV   1 k, 2 n, 3 most notices kept, 4 seconds after which a party that is told nothing more is forgotten
-- Reply  the notice's number; for a k that is among the notices kept, the number it has
--
-- Numbers rise by one: the newest entry always stays, so the stream itself remembers the last one.

local number = 1
for i, entry in ipairs(redis.call('XREVRANGE', KEYS[1], '+', '-')) do
  local at = tonumber(string.match(entry[1], '^%d+'))
  if i == 1 then
    number = at + 1
  end
  if entry[2][2] == ARGV[1] then
    return at
  end
end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], string.format('%.0f-0', number), 'k', ARGV[1], 'n', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return number
