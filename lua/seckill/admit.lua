#!lua
-- Judges purchase attempts for one shard of a lot, in order, as one atomic step.
--
-- KEYS   1 sale     hash    epoch, state, start, end, limit, left, returns, incarnation
--        2 buyers   hash    user -> "qty:orderNo" or, for a revived order, "qty:orderNo:revision";
--                           "~generation" once the user's order was closed
--        3 events   stream  one entry per admitted attempt: o order number, u user, q quantity, e epoch, and g generation
--                           for a user who had an order before
-- ARGV   four per attempt: user, qty, orderNo, generation
-- Reply  one string per attempt:
--        OK                          admitted: units reserved, buyer recorded, event logged
--        HAVE qty:orderNo[:revision] the user holds this already
--        AGAIN generation            the user's last order was closed; the attempt needs the number of this generation
--        NONE                        no sale is in force, or it is paused
--        EARLY | LATE                before the window | after it, or closed
--        LIMIT                       more than one user may have
--        SOLDOUT left epoch returns  fewer are left than were asked for; epoch and returns say when that was
--
-- A buyer is recognised before anything else is judged: a winner who asks again must hear the same, also after the
-- end and after the last unit. The clock is this server's; callers' clocks differ. The script decides first and writes
-- afterwards, stock first: should a write ever fail half-way, units are missing rather than sold twice.
-- Events are never trimmed here; acknowledging them removes them.

local sale = redis.call('HMGET', KEYS[1], 'epoch', 'state', 'start', 'end', 'limit', 'left', 'returns')
local epoch, limit, left = sale[1], tonumber(sale[5]), tonumber(sale[6])

local closed
if not epoch or sale[2] == 'paused' then
  closed = 'NONE'
elseif sale[2] ~= 'open' then
  closed = 'LATE'
else
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if now < tonumber(sale[3]) then
    closed = 'EARLY'
  elseif now >= tonumber(sale[4]) then
    closed = 'LATE'
  end
end

local users = {}
for at = 1, #ARGV, 4 do
  users[#users + 1] = ARGV[at]
end
local known = redis.call('HMGET', KEYS[2], unpack(users))

local held, taken, short = {}, 0, nil
local answers, buyers, events = {}, {}, {}
for i = 1, #users do
  local user, qty, order, generation = users[i], ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local units = tonumber(qty)
  local has, due = held[user] or known[i], '0'
  if has and string.byte(has) == 126 then
    has, due = nil, string.sub(has, 2)
  end
  if has then
    answers[i] = 'HAVE ' .. has
  elseif closed then
    answers[i] = closed
  elseif units > limit then
    answers[i] = 'LIMIT'
  elseif units > left - taken then
    -- Most of a flash sale hears this; the words are made once.
    short = short or 'SOLDOUT ' .. (left - taken) .. ' ' .. epoch .. ' ' .. (sale[7] or '0')
    answers[i] = short
  elseif generation ~= due then
    answers[i] = 'AGAIN ' .. due
  else
    taken, short = taken + units, nil
    held[user] = qty .. ':' .. order
    buyers[#buyers + 1] = user
    buyers[#buyers + 1] = held[user]
    local event = { 'o', order, 'u', user, 'q', qty, 'e', epoch }
    if due ~= '0' then
      event[9], event[10] = 'g', due
    end
    events[#events + 1] = event
    answers[i] = 'OK'
  end
end

if taken > 0 then
  redis.call('HINCRBY', KEYS[1], 'left', -taken)
  redis.call('HSET', KEYS[2], unpack(buyers))
  for _, event in ipairs(events) do
    redis.call('XADD', KEYS[3], '*', unpack(event))
  end
end
return answers
