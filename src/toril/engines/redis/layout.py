"""The layout on Redis: keys, fields and scores. Nothing else knows them; scripts get them from here, by name.

Most of it is BullMQ's. What is Toril's own begins with `toril`, which BullMQ ignores: keys beside a queue's others,
keys of the whole prefix (under an empty queue name), and fields of a job's hash.
"""

import base64
from typing import Final

from toril.model import (
    ATTEMPT_ERRORS,
    CLAIMED_STEP_BYTES,
    MAX_ATTEMPTS,
    MAX_DELAY,
    MAX_INBOX,
    MAX_INBOX_BYTES,
    MAX_KEPT_SIGNAL_BYTES,
    MAX_KEPT_SIGNALS,
    MAX_PRIORITY,
    MAX_SENT_IDS,
    MAX_STEP_BYTES,
    MAX_STEPS,
    SIGNAL_IDS,
)
from toril.model.names import RESERVED_IDS

__all__ = [
    "FIELDS",
    "FLEET",
    "KEYS",
    "LAST_MOMENT",
    "NUMBERS",
    "RECORD_FIELDS",
    "SCHEDULE_FIELDS",
    "client_name",
    "due_of",
    "event_place",
    "fleet_base",
    "may_be_id",
    "queue_base",
    "stream_id",
]

# After `<prefix>:<queue>:`. In scripts `K.wait` stands for the text of it.
KEYS: Final = {
    # BullMQ's
    "id": "id",  # string: the last number given to a job
    "meta": "meta",  # hash: the queue's settings
    "wait": "wait",  # list: ready, without a priority; the next one is at the right. Suspects stand here too
    "paused": "paused",  # list: what versions before 6 put aside while paused; only read, and merged on resume
    "active": "active",  # list: running
    "prioritized": "prioritized",  # zset: ready; priority * 2^32 + a counter
    "pc": "pc",  # string: that counter
    "delayed": "delayed",  # zset: due ms * 4096 + the order within a millisecond
    "waiting_children": "waiting-children",  # zset: parents
    "completed": "completed",  # zset: ended ms, and a fraction for the order within a millisecond
    "failed": "failed",  # zset: the same
    "marker": "marker",  # zset: 0 = something is ready, 1 = the next due time; workers block on it
    "stalled": "stalled",  # set: running at the last stall check, and not renewed since
    "stalled_check": "stalled-check",  # string: whose turn BullMQ's stall check is; ours needs no turns
    "limiter": "limiter",  # string: starts in the fixed window
    "events": "events",  # stream
    "repeat": "repeat",  # zset: schedulers -> time of their current run, whose job is `repeat:<scheduler>:<time>`
    "schedule": "repeat:",  # + scheduler, hash: what it makes, and when
    "dedup": "de:",  # + key, string: the job that owns the key
    "dedup_next": "dn:",  # + key, hash: the job that is made when the owner ends
    "metrics_completed": "metrics:completed",  # hash: count, prevTS, prevCount; and with `:data` a list by minute
    "metrics_failed": "metrics:failed",
    "metrics_data": ":data",  # after either of these
    # after a job's key
    "lock": ":lock",  # string: the token of the lease
    "logs": ":logs",  # list
    "dependencies": ":dependencies",
    "processed": ":processed",
    "child_failures": ":failed",
    "unsuccessful": ":unsuccessful",
    "hold": ":building",  # a member of `dependencies`: holds a parent back while its flow is added
    # Toril's own
    "toril": "toril",  # hash: the queue's counters and settings that BullMQ does not have
    "deadlines": "toril:deadlines",  # zset: job -> when its lease runs out
    "suspects": "toril:suspects",  # zset: job -> order; those in `wait` that have stalled and must run alone
    "starts": "toril:starts",  # zset: "slot:fence:count" -> slot; starts within the sliding window
    "runs_completed": "toril:runs:completed",  # list of packed run records, newest first
    "runs_failed": "toril:runs:failed",
    "runs_cancelled": "toril:runs:cancelled",
    "results": "toril:results",  # hash: job -> packed cause and text, for who gave a `result_ttl`
    "results_till": "toril:results:till",  # zset: job -> when that is forgotten
    "building": "toril:building",  # zset: parent held back -> when to believe that the rest of its flow never comes
    "ages": "toril:ages",  # zset: finished job -> when its retention is over
    "schedules": "toril:schedules",  # hash: what BullMQ's schedulers do not have; see `lib/schedules.lua`
    "departed": "toril:departed",  # set: schedules that have left for another store
    "parked": "toril:parked",  # zset of one score: group, 1, priority and order, id; jobs that wait beside the line
    "seats": "toril:seats",  # the same: group, 1 (in the line) or 2 (started, or put off and keeping its seat), id
    "put_off": "toril:put-off",  # the same: group, 1, id; jobs in `delayed`
    "ring": "toril:ring",  # zset: group that has parked jobs and room -> its turn
    "till": "toril:till",  # zset: group with parked jobs whose rate is used up -> until when
    "group_starts": "toril:group-starts",  # hash: group -> packed times and counts of starts in its window
    "group_own": "toril:group-own",  # hash: group -> its own limits, and whether it is paused
    "resting": "toril:resting",  # zset: job that rests -> until when; those that wait for children only come last
    "awaited": "toril:awaited",  # hash: signal and key -> the job that waits for it
    "kept_signals": "toril:kept-signals",  # hash: signal and key -> packed list of those that no job waits for yet
    "kept_till": "toril:kept-signals:till",  # zset: signal, key and number -> until when it is kept
    "sent_ids": "toril:sent-ids",  # zset: signal, key and id of those sent by key -> their order
    "sent_till": "toril:sent-ids:till",  # the same -> until when they are known
    "figures": "toril:figures",  # hash: what was counted in the minute under way; see `lib/metrics.lua`
    "figures_noted": "toril:figures:noted",  # string: attempts not counted there yet; see `lib/metrics.lua`
    "figures_past": "toril:figures:past",  # hash: "step:place" -> the same of a slice of so many minutes, as JSON
    "figures_all": "toril:figures:all",  # hash: the same of all minutes before
    "letters": "toril:letters",  # zset, of the dead letters' queue: letter -> when it failed
    "ended": "toril:ended",  # channel: the ids of jobs that have ended
}

# After `<prefix>::toril:`, for the whole fleet. In scripts `G.workers`. Names are followed by a colon and a word, so
# that no key of ours ends as BullMQ's `…:meta` and `…:id`, by which dashboards find queues.
FLEET: Final = {
    "queues": "queues",  # set
    "call": "call:",  # + sender + ":call": number, space, packed answer of the last call; an outbox's stays
    "workers": "workers",  # hash: worker -> when seen, and its beat as JSON
    "workers_till": "workers:till",  # zset: worker -> when it counts as dead
    "orders": "orders",  # hash: worker -> words
    "declared": "declared:",  # + worker + ":declared", hash: queue -> when, and what the worker declares of it as JSON
    "poke": "poke:",  # + worker + ":poke": zset like a marker, on which the worker's process blocks
    "lead": "lead:",  # + role + ":lead": "till owner"
    "once": "once:",  # + key + ":once": "till owner"
    "circuits": "circuits",  # hash: key -> a breaker's state as JSON
    "audit": "audit",  # stream: who has changed what over HTTP
    "van": "van",  # list: packed parcels, which have left their place and may not have arrived in another store yet
    "moving": "moving",  # hash: the load's number, mark and target; this store's name; queue -> where it has left for
    "arrived": "arrived",  # hash: store -> number and mark of the last load that has come from it
    "confirm": "confirm:",  # + a name of the process + ":confirm": written last, so that replicas are waited for
    "wake": "wake:",  # + a name of the process + ":wake": wakes the process's own blocking connection
}

# Fields of the hashes. In scripts `F.attempts_made`.
FIELDS: Final = {
    # a job's, as BullMQ has them
    "name": "name",
    "data": "data",
    "opts": "opts",
    "added_at": "timestamp",
    "delay": "delay",
    "priority": "priority",
    "started_at": "processedOn",
    "worker": "pb",
    "starts": "ats",
    "attempts_made": "atm",
    "attempts_made_old": "attemptsMade",
    "stalls": "stc",
    "progress": "progress",
    "result": "returnvalue",
    "reason": "failedReason",
    "trace": "stacktrace",
    "finished_at": "finishedOn",
    "dedup": "deid",  # the key that it was added with
    "scheduler": "rjk",  # the scheduler whose run it is
    "parent": "parent",  # JSON: whose child it is, and what its failure does there
    "parent_key": "parentKey",
    "deferred": "defa",  # a failure that whoever activates the job has to carry out
    # a job's, our own
    "held": "toril:held",  # "fence alone max_stalls" of the last claim
    "expires": "toril:expires",  # ms: not to be started from then on
    "metadata": "toril:metadata",
    "checkpoint": "toril:checkpoint",
    "cancelling": "toril:cancel",  # the reason why someone wants it stopped
    "parked": "toril:parked",  # how often it was parked with new children
    "kind": "toril:kind",  # of the last failure
    "stall_cause": "toril:cause",
    "errors": "toril:errors",  # of attempts that were followed by another, a line each: see `policy.attempts`
    "waited": "toril:waited",  # the delay before the last retry; BullMQ's `delay` goes back to 0 when it is over
    "ready": "toril:ready",  # since when it could start, where that is not told by when it was added
    "group": "toril:group",
    "children": "toril:children",  # the order of its children: ["queue:id","name"] each, with commas between
    "order": "toril:order",  # its place among those of its group: smaller goes first
    "step": "toril:s:",  # + key: a row of its steps, see `codec.steps`
    "steps": "toril:steps",  # "number count bytes": of the last row, and of all there are
    "reruns": "toril:reruns",  # "reruns epoch": how often it was run again by hand, and began its steps anew
    "rest": "toril:rest",  # why it rests, as JSON: only while it does
    "awaits": "toril:awaits",  # packed: signals and keys that `toril:awaited` has for it
    "inbox": "toril:inbox",  # packed: signals that it has not read
    "signal_ids": "toril:signal-ids",  # packed: ids of signals that it has read, the newest last
    # a scheduler's, at `repeat:<scheduler>`
    "tz": "tz",
    "limit": "limit",
    "pattern": "pattern",
    "start": "startDate",
    "end": "endDate",
    "every": "every",
    "offset": "offset",
    "made": "ic",  # runs made; legacy repeatables do not have it
    # a dead letter's, beside those of the job that it was
    "letter_queue": "toril:queue",
    "letter_job": "toril:job",
    "letter_cause": "toril:death",
    "letter_head": "toril:head",  # bytes of `data` before the job's own; -1: see the next
    "letter_data": "toril:data",  # the job's own payload where it is no JSON
    # `meta`
    "max_events": "opts.maxLenEvents",
    "is_paused": "paused",
    "concurrency": "concurrency",
    "rate_max": "max",
    "rate_ms": "duration",
    "version": "version",  # of the last library of BullMQ's that has opened the queue
    # `toril`
    "claims": "claims",  # the last fence
    "stood": "stalls",  # the last number of a suspect
    "runs_completed": "runs:completed",  # the last number of a run record
    "runs_failed": "runs:failed",
    "runs_cancelled": "runs:cancelled",
    "max_waiting": "max_waiting",
    "expiring": "expiring",  # set once a job with a time to start by was added
    "window": "window",  # "sliding" where `max` and `duration` are not BullMQ's fixed window
    "starts_count": "starts",  # in the sliding window
    "window_till": "window_till",  # when the fixed window ends, for a clock that is not the server's
    "held_till": "held_till",  # nothing starts before: whom the jobs call has had enough for a while
    "grouped": "groups",  # 1 once a job had a group, 2 once a group had limits of its own
    "groups_set": "groups:set",  # limits of each group, by hand and by the code: see `GroupLimits.dump`
    "groups_declared": "groups:declared",
    "orders": "orders",  # the last order given to a job of a group
    "turns": "turns",  # the last turn given to a group
    "scanned": "scanned",  # where a look for starts that are over goes on
    "seats_checked_at": "tended_at",
    "tended": "tended",  # the group up to which seats were compared with the truth
    "figures_minute": "minute",  # the minute under way of the figures
    "stepping": "stepping",  # 1 once a job has recorded a step, rested or waited for a signal
    "signals": "signals",  # the last number of a signal
    "kept_bytes": "signals:bytes",  # of the signals that are kept by key
    "beside": "beside",  # 1 once a job was found to have logs or children
    "completed_minute": "minute:completed",  # the last one in which jobs are known to have completed
    "ghosts": "ghosts",  # ids that had no hash
    "collected": "collected",  # up to which time failed jobs were looked through for dead letters
    "for_letters": "letters",  # 1 in the dead letters' queue, once there was one
    "keep_letters": "keep",  # "count age" of dead letters, in their own queue's; -1 for no bound
    # figures; the first are followed by a bucket or a name
    "waits": "w",
    "runs": "r",
    "of_name": "n",  # jobs of that name that failed
    "of_others": "o",  # jobs of other names that failed
    "names": "k",  # how many names there are
    "cancelled": "x",
    "retries": "e",
    "stalled": "s",
    "lost": "l",  # leases that ran out
    "rests": "z",
    "records": "d",  # rows of durable steps
    "signalled": "g",  # signals of the outcome that follows
    "minute": "m",
    # metrics
    "count": "count",
    "prev_ts": "prevTS",
    "prev_count": "prevCount",
}

# Numbers that scripts share. In scripts `N.ties`.
NUMBERS: Final = {
    "ties": 4096,  # places within a millisecond
    "priorities": 2**32,
    "largest": 2**53,  # up to here scripts and JavaScript count exactly
    "lowest_priority": MAX_PRIORITY,
    "attempts": MAX_ATTEMPTS,
    "middle": 2**20,  # where the counter of priorities begins, so that there is room for those put to the front
    "remembered": 3_600_000,  # ms for which the answer to a call is kept
    "slack": 3_600_000,  # ms that a key outlives its time where the clock is not the server's
    "events": 10_000,
    "runs": 1_000,
    "minutes": 7 * 24 * 60,
    "promoted": 200,  # a claim
    "expired": 200,  # ended a claim
    "passed": 1_000,  # suspects that a claim which may not take them walks past
    "trimmed": 1_000,  # a step
    "few": 4,  # jobs that end in a step, each of which is looked at for what it has beside its own keys
    "looked_at": 20_000,  # jobs that a sweep passes over
    "strangers": 1_000,  # running jobs of other libraries' workers, a look for lost ones
    "recent_events": 1_000,  # events among which the end of a job is looked for
    "errors": ATTEMPT_ERRORS,
    "traces": 100_000,  # bytes of stack traces kept
    "skew": 600_000,  # ms by which the clocks of a fleet may differ
    "parents_checked": 100,  # parents looked at in a round
    "walked": 10_000,  # entries of lists that a look for faults walks over in one step
    "patience": 5_000,  # ms after its deadline that a job may still be waiting to be taken back
    "ordered": 300_000,  # ms that orders outlive a worker's sign of life: its loop may stand still and go on
    "prune_overdue": 420_000,  # ms after which a dead worker's entry should have been pruned
    "orders": 5 * 10**15,  # where the order within a group begins, so that there is room before it
    "passes": 100,  # groups that a claim looks at beyond what it takes
    "seats_checked": 100,  # seats that a round compares with the truth
    "seat_check_every": 1_000,  # ms between two looks of claims at the seats of groups
    "seats_per_claim": 20,  # seats that such a look compares
    "exact": 100,  # starts up to which a group's rate is counted to the millisecond
    "next": 8,  # jobs, and priorities, among which the one is looked for that has waited longest
    "buckets": 256,  # of times: 49 days and more are one
    "unknown": 255,  # a byte that stands for no bucket
    "noted": 2048,  # bytes of attempts, from which on they are counted
    "slices": 240,  # of each length
    "names": 20,  # of jobs, whose failures are told apart in a slice
    "all_names": 100,  # the same in the sum of all
    "name": 100,  # bytes of a name that is told apart
    "leap": 60,  # minutes that figures may lie ahead: by more, a clock was wrong for a while
    "page": 4 * 1024 * 1024,  # bytes of jobs, from which on a page takes no more of them
    "look": 512 * 1024,  # the same for one step of those that a page is put together from
    "looks": 200,  # jobs in such a step
    "record": 28,  # fields that a reader is shown
    "steps": MAX_STEPS,  # rows of a job, and their bytes
    "step_bytes": MAX_STEP_BYTES,
    "claimed_steps": CLAIMED_STEP_BYTES,  # bytes of rows, from which on a claim takes no more jobs
    "inbox": MAX_INBOX,  # signals that a job has not read, and their bytes
    "inbox_bytes": MAX_INBOX_BYTES,
    "signal_ids": SIGNAL_IDS,  # that a job remembers
    "kept_signals": MAX_KEPT_SIGNALS,  # by key, for which no job waits yet, and their bytes
    "kept_signal_bytes": MAX_KEPT_SIGNAL_BYTES,
    "sent_ids": MAX_SENT_IDS,  # of signals by key that a queue remembers
    "longest_rest": MAX_DELAY,  # ms, of a job that rests without a time; then it runs, and rests again
    "rest_last": 2**42,  # where those stand that wait for their children only: see LAST_MOMENT
}

# What a reader is shown of a job.
RECORD_FIELDS: Final = (
    "name", "data", "added_at", "opts", "attempts_made", "stalls", "starts", "delay", "priority", "waited",
    "metadata", "checkpoint", "expires", "held", "progress", "result", "reason", "kind", "trace", "stall_cause",
    "cancelling", "worker", "started_at", "finished_at", "attempts_made_old", "parent", "group",
    "rest",
)  # fmt: skip

# What a scheduler's hash says.
SCHEDULE_FIELDS: Final = (
    "name", "data", "opts", "tz", "limit", "pattern", "start", "end", "every", "offset", "made",
)  # fmt: skip

LAST_MOMENT: Final = 2**42  # ms: in the year 2109; up to here every store can keep a time, as it does a due one
_SEQUENCE_BITS: Final = 20  # events of one millisecond in the number that stands for an event


def queue_base(prefix: str, queue: str) -> str:
    """The beginning of all keys of a queue."""
    return f"{prefix}:{queue}:"


def fleet_base(prefix: str) -> str:
    """The beginning of the keys of the whole prefix; they stand beside the queues, whose names are not empty."""
    return f"{prefix}::toril:"


def client_name(prefix: str, queue: str, worker: str) -> str:
    """The connection name by which BullMQ recognizes a queue's workers."""
    return f"{prefix}:{base64.b64encode(queue.encode()).decode()}:w:{worker}"


def may_be_id(job_id: str) -> bool:
    """Whether this id gives the key of a job, and not one of the layout."""
    if ":" not in job_id:
        return job_id != "" and job_id not in RESERVED_IDS
    first, *rest = job_id.split(":")
    if first == "repeat":  # a run of a scheduler, whose name BullMQ allows colons in
        return len(rest) >= 2
    return len(rest) == 2 and first not in RESERVED_IDS


def due_of(score: str) -> int:
    """The due time in a delayed job's score."""
    return int(min(max(float(score), 0), LAST_MOMENT * NUMBERS["ties"])) // NUMBERS["ties"]


def event_place(entry: str) -> int:
    """The number of an entry of the stream: its time, then its order within the millisecond."""
    time, _, order = entry.partition("-")
    return (int(time) << _SEQUENCE_BITS) + int(order)


def stream_id(place: int) -> str:
    """The entry with this number."""
    return f"{place >> _SEQUENCE_BITS}-{place & ((1 << _SEQUENCE_BITS) - 1)}"
