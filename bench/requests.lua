-- Sends the requests of a file in turn and reports in JSON: wrk -s requests.lua URL -- FILE FIRST-TURN
local requests, turn = {}, 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  for request in (file:read("*a") .. "\0"):gmatch("(.-)%z") do requests[#requests + 1] = request end
  file:close()
  turn = tonumber(args[2])
end

function request()
  turn = turn + 1
  return requests[(turn - 1) % #requests + 1]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%f,"p99":%f,"refused":%d,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
