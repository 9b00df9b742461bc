-- Settle finished jobs, then claim new ones, in one step.
-- KEYS    the queue's base, the fleet's base
-- ARGV    now, sender, number; want, token, lease, worker, alone, max stalls, priorities first; rate: max, ms, window;
--         how many settlements, and for each: id, token, kind, text, shown, extra, trace
-- Returns verdicts, jobs (id, fence, suspect, fields and values as before the claim), now, wake_at, gate, suspects,
--         and {id, name, reason, kind} of those ended instead of started
-- Events  completed, failed, retries-exhausted, waiting, delayed, waiting-children, active, drained
-- uses calls leases
local before = calls.recall()
if before then return before.err and before or leases.granted_before(before) end
-- then queue jobs metrics fast_path
local want, count = tonumber(ARGV[4]), tonumber(ARGV[14])
queue.read_settings()
metrics.minute, metrics.completed_minute = queue.own[9], tonumber(queue.own[10])
jobs.trust_sample(count)
leases.prepare()
local answer = fast_path.run(want, count)
if answer then return answer end
-- then line groups places finish settle claim
groups.settings = {queue.own[5], queue.own[6], queue.own[7]}
line.count()
local batch = settle.check(count)
local writes = batch.writes
local mistake = context.wrong('zset', K.marker) or context.wrong('stream', K.events)
  or ((count == 0 or slack == 0) and context.wrong('zset', K.deadlines))
  or ((writes.rests or queue.own[12]) and (context.wrong('zset', K.resting, K.kept_till)
    or context.wrong('hash', K.awaited, K.kept_signals)))
  or (writes.completed and finish.wrong('completed', writes.kept))
  or ((writes.failed or queue.own[3]) and finish.wrong('failed', true))
  or ((writes.failed or line.prioritized + line.delayed > 0) and context.wrong('string', K.pc)) or groups.wrong()
  or ((queue.meta[3] or ARGV[11] ~= '') and (context.wrong('zset', K.starts) or context.wrong('string', K.limiter)))
if mistake then return mistake end

settle.batch(batch)
local gate, wake_at, suspects = claim.jobs(want)
if settle.delayed_some then places.mark_due() end
claim.notify(want, gate, #batch.ids > 0, settle.released_suspect)
calls.remember({batch.verdicts, leases.taken_ids, now, wake_at, gate, suspects, claim.unstarted})
return {batch.verdicts, leases.taken, now, wake_at, gate, suspects, claim.unstarted}
