#!lua
-- Lets a closed sale be forgotten after a while.
--
-- KEYS   1 sale, 2 buyers, 3 events   as in admit.lua
--        4 transfers                  as in send.lua
-- ARGV   1 epoch, 2 seconds until it is forgotten
-- Reply  1 so it will be, 0 the sale is not closed, or another epoch or no sale is in force

local sale = redis.call('HMGET', KEYS[1], 'epoch', 'state')
if sale[1] ~= ARGV[1] or sale[2] ~= 'closed' then
  return 0
end
for _, key in ipairs(KEYS) do
  redis.call('EXPIRE', key, ARGV[2])
end
return 1
