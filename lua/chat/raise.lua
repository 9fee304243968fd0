#!lua
-- Remembers how far sessions have come; a lower position changes nothing.
--
-- KEYS   tops, of one slot each where there are slots
--        string  "epoch:number"
-- ARGV   1 seconds after which a quiet session is forgotten; then for each key epoch and number
-- Reply  nothing

for i, key in ipairs(KEYS) do
  local epoch, number = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
  local e, n = string.match(redis.call('GET', key) or '', '^(%d+):(%d+)$')
  e, n = tonumber(e or 0), tonumber(n or 0)
  if epoch > e or (epoch == e and number > n) then
    redis.call('SET', key, ARGV[2 * i] .. ':' .. ARGV[2 * i + 1], 'EX', ARGV[1])
  else
    redis.call('EXPIRE', key, ARGV[1])
  end
end
