-- include events
-- Jobs given into a claimer's hands: ARGV[5] token, [6] lease, [7] worker, [9] max stalls.
local token, worker = ARGV[5], ARGV[7]
local deadline, lease = string.format('%.0f', now + ARGV[6]), slack == 0 and ARGV[6] or string.format('%.0f', ARGV[6] + slack)
local taken, taken_ids, fence = {}, {}, tonumber(own[1] or nil) or 0

-- `row` is the job's hash as it was before.
local function hand_out(id, row, starts, suspect)
  local key, n = P .. id, #taken + 1
  fence = fence + 1
  starts = starts and tostring((as_number(starts) or 0) + 1) or '1'
  call('HSET', key, F.started_at, NOW, F.worker, worker, F.starts, starts, F.held, string.format('%d %d ', fence, suspect) .. ARGV[9])
  call('SET', key .. K.lock, token, 'PX', lease)
  if n == 1 then
    call('XADD', EVENTS, 'MAXLEN', '~', longest_of(meta[5]), '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  else
    call('XADD', EVENTS, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  end
  taken[n], taken_ids[n] = {id, fence, suspect, row}, id
end

-- After the last of them.
local function note_taken()
  if #taken == 0 then return end
  local deadlines = {}
  -- The last one first: where the set is small, an entry that goes to its beginning is put there without a search.
  for i = 1, #taken do deadlines[2 * i - 1], deadlines[2 * i] = deadline, taken_ids[#taken - i + 1] end
  call('LPUSH', P .. K.active, unpack(taken_ids))
  call('ZADD', P .. K.deadlines, unpack(deadlines))
  call('HSET', P .. K.toril, F.claims, string.format('%d', fence))
end
