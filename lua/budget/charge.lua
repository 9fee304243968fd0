#!lua
-- Charges every account, or none: GCRA with a full burst. The twin of gateway-core's policy::budget.
--
-- KEYS   one account per charge, repeated where several charges go to one account
--        hash   tat     instant in microseconds at which everything charged is paid off
--               rest    what was rounded off it, in parts of the limit
--               replay  token of the last charge that cost something, or ''
-- ARGV   five per charge: window in microseconds; limit; what the charge adds to tat, in whole microseconds and in
--        parts of the limit; replay token or ''
-- Reply  { 0 }                   every account was charged
--        { index, retry after }  none was: the first exhausted charge, counted from 1, and how many microseconds
--                                must pass until it fits
--
-- A charge that repeats the token its account remembers from an earlier call is the same request again and is free.
-- The clock is this server's. Every number stays below 2^53, where Lua's doubles are exact; the caller divides.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local accounts = {}
for i, key in ipairs(KEYS) do
  local at = 5 * (i - 1)
  local window, limit = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local whole, part, token = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5]

  local account = accounts[key]
  if not account then
    local stored = redis.call('HMGET', key, 'tat', 'rest', 'replay')
    account = { tat = tonumber(stored[1] or 0), rest = tonumber(stored[2] or 0), remembered = stored[3] }
    accounts[key] = account
  end

  if token == '' or token ~= account.remembered then
    local tat, rest = account.tat, math.min(account.rest, limit - 1)
    if tat < now then
      tat, rest = now, 0
    end
    tat, rest = tat + whole, rest + part
    if rest >= limit then
      tat, rest = tat + 1, rest - limit
    end
    local ahead = tat - now
    if rest > 0 then
      ahead = ahead + 1
    end
    if ahead > window then
      return { i, ahead - window }
    end
    account.tat, account.rest, account.replay, account.charged = tat, rest, token, true
  end
end

for key, account in pairs(accounts) do
  if account.charged then
    redis.call('HSET', key, 'tat', string.format('%.0f', account.tat), 'rest', account.rest, 'replay', account.replay)
    redis.call('PEXPIRE', key, math.ceil((account.tat - now) / 1000) + 1)
  end
end
return { 0 }
