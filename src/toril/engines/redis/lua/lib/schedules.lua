-- Schedules, stored as BullMQ's schedulers: creates and removes their runs.
-- needs events jobs places new_jobs steps signals
-- What BullMQ's lack stands in the hash `toril:schedules`: under a scheduler's id its own settings as JSON; under that id
-- after `paused:`, `over:` and `last:` what became of it, and the run started last.
local schedules = {own = P .. K.schedules}

-- Whatever schedules write to must be of the right type.
function schedules.wrong()
  return context.wrong('list', K.wait, K.active) or context.wrong('stream', K.events)
    or context.wrong('hash', K.meta, K.toril, K.schedules)
    or context.wrong('zset', K.prioritized, K.delayed, K.completed, K.failed, K.deadlines, K.marker, K.suspects, K.repeat)
    or context.wrong('string', K.pc, K.id)
end

function schedules.run_id(schedule, slot) return 'repeat:' .. schedule .. ':' .. string.format('%.0f', slot) end

-- The time of the current run; nil if there is no such schedule. Legacy repeatables have no count, and are none.
function schedules.slot(schedule)
  if call('HEXISTS', P .. K.schedule .. schedule, F.made) == 0 then return nil end
  return tonumber(call('ZSCORE', P .. K.repeat, schedule) or nil)
end

-- Whether a job is the next run of its schedule: without it, BullMQ's own workers would make none after it.
function schedules.is_current_run(id)
  local schedule, slot = id:match('^repeat:(.+):(%d+)$')
  local current = schedule and call('ZSCORE', P .. K.repeat, schedule)
  return current and tonumber(current) == tonumber(slot)
end

function schedules.is_flagged(schedule, flag) return call('HEXISTS', schedules.own, flag .. ':' .. schedule) == 1 end

function schedules.is_unfinished(id)
  return call('EXISTS', P .. id) == 1 and not call('ZSCORE', P .. K.completed, id) and not call('ZSCORE', P .. K.failed, id)
end

-- Whether a run has not started. By its lock and deadline, which are found at once, and not by where it stands in the line;
-- one that rests has started.
function schedules.is_waiting(id)
  return schedules.is_unfinished(id) and call('EXISTS', P .. id .. K.lock) == 0 and not call('ZSCORE', P .. K.deadlines, id)
    and not steps.rest_of(id)
end

-- Whether whoever empties a queue passes a job over: the next run of a schedule, or one that rests.
function schedules.stays(id) return schedules.is_current_run(id) or steps.rest_of(id) ~= nil end

-- Remove the current run, unless it has started.
function schedules.drop_run(schedule)
  local slot = schedules.slot(schedule)
  local id = slot and schedules.run_id(schedule, slot)
  if not id or not schedules.is_waiting(id) then return end
  local state = places.state(id)
  if state == 'active' then return end
  places.leave(id, state)
  signals.leave(id)
  jobs.delete(id)
  jobs.flush_deleted()
  events.add('removed', 'jobId', id, 'prev', state == 'waiting' and 'wait' or state or 'delayed')
end

-- The options of a run: the template's, and all that BullMQ's workers need to make the next one.
function schedules.run_options(f, schedule, id, slot, count)
  local parts = {}
  local function text(name, value) if value then parts[#parts + 1] = '"' .. name .. '":' .. cjson.encode(value) end end
  local function number(name, value) if value then parts[#parts + 1] = '"' .. name .. '":' .. value end end
  text('pattern', f[6])
  text('tz', f[4])
  number('limit', f[5])
  number('startDate', f[7])
  number('endDate', f[8])
  number('every', f[9])
  if f[9] then number('offset', f[10]) end
  number('count', count)
  local template = ((f[3] or '{}'):match('^%s*{(.*)}%s*$') or ''):gsub('(.)$', '%1,')
  return string.format('{%s"repeat":{%s},"repeatJobKey":%s,"jobId":%s,%s"timestamp":%s,"delay":%.0f}', template,
    table.concat(parts, ','), cjson.encode(schedule), cjson.encode(id),
    f[6] and string.format('"prevMillis":%.0f,', slot) or '', NOW, math.max(0, slot - now))
end

-- The job of the run at `slot`, which takes the place of the current one.
function schedules.make_run(schedule, slot, count)
  local f, id = call('HMGET', P .. K.schedule .. schedule, F.schedule_fields), schedules.run_id(schedule, slot)
  local own = jobs.options(call('HGET', schedules.own, schedule) or '{}')
  local priority = context.number(jobs.options(f[3] or '{}').priority, N.lowest_priority) or 0
  call('INCR', P .. K.id)
  new_jobs.store(id, nil, f[1], f[2] or '{}', schedules.run_options(f, schedule, id, slot, count), 0, slot, priority, '',
    own.expires and tostring(own.expires) or '', own.metadata or '', nil, nil, nil, own.group)
  call('HSET', P .. id, F.scheduler, schedule)
  call('ZADD', P .. K.repeat, slot, schedule)
  call('HSET', P .. K.schedule .. schedule, F.made, count)
  events.trim(call('HGET', P .. K.meta, F.max_events))
  places.mark_due()
  places.mark_ready()
end
