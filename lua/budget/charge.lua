#!lua
-- Charges every account, or none: GCRA with a full burst. The twin of gateway-core's policy::budget.
--
-- KEYS   one account per charge, repeated where several charges go to one account
--        string  "tat:rest:replay"
--                tat     instant in microseconds at which everything charged is paid off
--                rest    what was rounded off it, in parts of the limit
--                replay  token of the last charge that cost something, or nothing
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

-- One read for all accounts and one write for each: calls are what a script costs.
local accounts, known = {}, redis.call('MGET', unpack(KEYS))
for i, key in ipairs(KEYS) do
  local at = 5 * (i - 1)
  local window, limit = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local whole, part, token = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5]

  local account = accounts[key]
  if not account then
    local tat, rest, remembered = string.match(known[i] or '', '^(%d+):(%d+):(.*)$')
    account = { tat = tonumber(tat or 0), rest = tonumber(rest or 0), remembered = remembered }
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
    local value = string.format('%.0f:%.0f:%s', account.tat, account.rest, account.replay)
    redis.call('SET', key, value, 'PX', math.ceil((account.tat - now) / 1000) + 1)
  end
end
return { 0 }
