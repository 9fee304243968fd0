-- wrk: each request is the attempt of another user. Arguments: a file of tokens, the first line that is used (from 0), how many
-- are, and the body. Stops when everybody had a turn; wrk takes one turn before it starts, to look at the request.
local requests, turn, stopped = {}, 0, false

function init(args)
  local file, first, count, body = args[1], tonumber(args[2]), tonumber(args[3]), args[4]
  local line = 0
  for token in io.lines(file) do
    if line >= first + count then break end
    if line >= first then
      requests[#requests + 1] = wrk.format("POST", nil, {
        ["Content-Type"] = "application/json",
        ["Authorization"] = "Bearer " .. token,
        ["X-Device-Id"] = "device-" .. line,
        ["Idempotency-Key"] = "key-" .. line,
      }, body)
    end
    line = line + 1
  end
end

function request()
  turn = turn + 1
  if turn >= #requests then
    turn = #requests
    if not stopped then
      stopped = true
      wrk.thread:stop()
      -- wrk would wait for the end of its time; the signal makes it count now. It is sent a moment later, because a process ignores
      -- it while it waits for a command.
      os.execute("wrk=$PPID; (sleep 0.2; kill -INT $wrk) &")
    end
  end
  return requests[turn]
end
