#!lua
-- Takes committed messages into roaming lists.
--
-- KEYS   roaming lists, of one slot each where there are slots
--        list  messages as JSON beginning {"s":session,"e":epoch,"n":number, oldest first; of one epoch, without a gap
-- ARGV   1 most messages kept, 2 seconds after which a quiet session is forgotten; then for each key how many messages it is
--        given and for each of those: epoch, number, number of the message it takes back or '', and the message
-- Reply  nothing
--
-- What a list has, or had before, is ignored. Where a message does not follow the last one the list begins anew with it: what is
-- in between would be missing for good. The last message kept is the place to go on from, so nothing can disagree with it.

local function place(message)
  local epoch, number = string.match(message, '^{"s":%d+,"e":(%d+),"n":(%d+),')
  return tonumber(epoch), tonumber(number)
end

-- Its content is the last string but those that no quote follows a comma in: flags and times.
local function blank(message)
  return (string.gsub(message, '^(.-,"content":").*",(.-)$', '%1","gone":true,%2'))
end

local at = 3
for _, key in ipairs(KEYS) do
  local count = tonumber(ARGV[at])
  at = at + 1
  local last = redis.call('LINDEX', key, -1)
  local epoch, number
  if last then
    epoch, number = place(last)
  end
  for _ = 1, count do
    local e, n, back, message = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]
    at = at + 4
    local newer = not epoch or e > epoch or (e == epoch and n > number)
    if newer then
      if epoch and (e ~= epoch or n ~= number + 1) then
        redis.call('DEL', key)
      end
      redis.call('RPUSH', key, message)
      epoch, number = e, n
      -- Negative positions count from the end: the message pushed last is -1.
      local named = back and back < n and redis.call('LINDEX', key, back - n - 1)
      if named and not string.find(named, ',"gone":true,', 1, true) then
        redis.call('LSET', key, back - n - 1, blank(named))
      end
    end
  end
  redis.call('LTRIM', key, -ARGV[1], -1)
  redis.call('EXPIRE', key, ARGV[2])
end
