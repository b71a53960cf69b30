-- Sends requests read from a file, one after the other or in a given order, and reports in JSON.
--   wrk -s requests.lua URL -- FILE ORDER-FILE-OR-EMPTY START
local requests, order, turn = {}, nil, 0

function init(args)
  local file = assert(io.open(args[1], "rb"))
  for request in (file:read("*a") .. "\0"):gmatch("(.-)%z") do requests[#requests + 1] = request end
  file:close()
  if args[2] ~= "" then
    order = {}
    for line in io.lines(args[2]) do order[#order + 1] = tonumber(line) + 1 end
  end
  turn = tonumber(args[3])
end

function request()
  local at = turn
  turn = turn + 1
  if order then return requests[order[at % #order + 1]] end
  return requests[at % #requests + 1]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%f,"bytes":%d,"p50":%f,"p99":%f,"refused":%d,"failed":%d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes,
    latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
