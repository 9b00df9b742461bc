// BullMQ for Node as the tests drive it: one JSON object a line on stdin, one answer a line on stdout.
//
//   node driver.mjs HOST PORT PACKAGE  {"id": 1, "do": "queue", "queue": "q", "method": "add", "args": ["n", {}]}
//
// PACKAGE is `bullmq` or `bullmq5`: the same library, of two majors.
// Nothing else is ever written to stdout: what BullMQ logs goes to stderr, and ends after a while, since it can log
// without end. The process ends with its stdin.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { setTimeout } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { board } from './board.mjs'
import { spans, telemetry } from './telemetry.mjs'

const require = createRequire(import.meta.url)
const library = process.argv[4] ?? 'bullmq'
const { FlowProducer, Job, Queue, QueueEvents, UnrecoverableError, Worker } = await import(library)
const connection = { host: process.argv[2], port: Number(process.argv[3]), maxRetriesPerRequest: null }
const LOGGED = 1000

let logged = 0
for (const level of ['log', 'info', 'warn', 'error', 'debug', 'trace']) {
  console[level] = (...words) => {
    if (logged++ < LOGGED) process.stderr.write(`${words.map(String).join(' ')}\n`)
  }
}
process.on('unhandledRejection', error => console.error('unhandled', error?.stack ?? error))

const redis = new Redis({ ...connection, protocol: 2 }) // flat lists, as the tests take them apart
const queues = new Map()
const workers = new Map()
const listeners = new Map()

// Things that happened, in order, and those who wait for some of them.
class Record {
  entries = []
  #waiting = []

  note(entry) {
    this.entries.push(entry)
    this.#waiting = this.#waiting.filter(look => !look(entry))
  }

  matching(wanted) {
    return this.entries.filter(entry => fits(entry, wanted))
  }

  // What came before is counted once: a long run has many thousands.
  until(wanted, count) {
    return new Promise(resolve => {
      let left = count - this.matching(wanted).length
      const look = entry => {
        if (entry && fits(entry, wanted)) left--
        if (left <= 0) resolve(this.matching(wanted))
        return left <= 0
      }
      if (!look()) this.#waiting.push(look)
    })
  }
}

function fits(entry, wanted) {
  return Object.entries(wanted).every(([key, value]) => entry[key] === value)
}

// One step after the other, as the test wrote them down for jobs of this name.
async function play(steps, job, held) {
  for (const step of steps) {
    if ('progress' in step) await job.updateProgress(step.progress)
    if ('log' in step) await job.log(step.log)
    if ('data' in step) await job.updateData(step.data)
    if ('sleep' in step) await setTimeout(step.sleep)
    if (step.hold) await new Promise(resolve => held.set(job.id, resolve))
    if ('fail' in step && job.attemptsMade < (step.times ?? Infinity)) throw new Error(step.fail)
    if ('unrecoverable' in step) throw new UnrecoverableError(step.unrecoverable)
    if (step.children) return job.getChildrenValues()
    if (step.echo) return job.data
    if ('return' in step) return step.return
  }
}

function shown(job) {
  const { id, name, data, opts, timestamp, delay, priority, progress, attemptsMade, attemptsStarted } = job
  const { stalledCounter, processedOn, finishedOn, processedBy, failedReason, stacktrace, returnvalue } = job
  return {
    id, name, data, opts, timestamp, delay, priority, progress, attemptsMade, attemptsStarted,
    stalledCounter, processedOn, finishedOn, processedBy, failedReason, stacktrace, returnvalue
  }
}

function plain(value) {
  if (value instanceof Job) return shown(value)
  if (Array.isArray(value)) return value.map(plain)
  return value ?? null
}

const flows = new FlowProducer({ connection })
flows.on('error', error => console.error('flows', error))

function queue({ queue: name, options = {} }) {
  if (!queues.has(name)) {
    const { traced, ...rest } = options
    const made = new Queue(name, { connection, ...(traced ? { telemetry } : {}), ...rest })
    made.on('error', error => console.error(name, error))
    queues.set(name, made)
  }
  return queues.get(name)
}

// An idle worker looks by itself only once a minute, so that a test ends in time only if it is woken.
async function openWorker({ handle, queue: name, options = {}, script = { '*': [{ echo: true }] } }) {
  const record = new Record()
  const held = new Map()
  const process = job => {
    record.note({ event: 'active', jobId: job.id, name: job.name, attemptsMade: job.attemptsMade })
    return play(script[job.name] ?? script['*'] ?? [], job, held)
  }
  const { traced, ...rest } = options
  const given = { connection, autorun: false, drainDelay: 60, ...(traced ? { telemetry } : {}), ...rest }
  const worker = new Worker(name, process, given)
  worker.on('completed', (job, result) => record.note({ event: 'completed', jobId: job.id, result: result ?? null }))
  worker.on('failed', (job, error) => record.note({ event: 'failed', jobId: job?.id ?? null, message: error.message }))
  worker.on('stalled', jobId => record.note({ event: 'stalled', jobId }))
  worker.on('error', error => record.note({ event: 'error', message: error.message }))
  workers.set(handle, { worker, record, held })
  await worker.waitUntilReady()
  worker.run().catch(error => console.error('run', error))
}

async function listen({ queue: name }) {
  const record = new Record()
  const source = new QueueEvents(name, { connection, autorun: false, lastEventId: '0-0' })
  const emit = source.emit.bind(source)
  source.emit = (event, args, id) => {
    // Each event comes a second time with the job's id in its name, for those who wait for one job.
    if (typeof id === 'string' && !event.endsWith(`:${args.jobId}`)) record.note({ ...args, event, at: Number(id.split('-')[0]) })
    else if (event === 'error') record.note({ event, message: String(args) })
    return emit(event, args, id)
  }
  source.on('error', () => {})
  listeners.set(name, { source, record })
  await source.waitUntilReady()
  source.run().catch(error => console.error('events', error))
}

function release({ handle, jobId }) {
  const { held } = workers.get(handle)
  const go = held.get(jobId)
  if (!go) throw new Error(`job ${jobId} is not held`)
  held.delete(jobId)
  go()
}

async function closeWorker({ handle, force = false }) {
  const { worker, held } = workers.get(handle)
  workers.delete(handle)
  for (const go of held.values()) go()
  await worker.close(force)
}

async function reset() {
  await Promise.all([...workers.keys()].map(handle => closeWorker({ handle, force: true })))
  await Promise.all([...listeners.values()].map(({ source }) => source.close()))
  await Promise.all([...queues.values()].map(one => one.close()))
  for (const kept of [listeners, queues]) kept.clear()
  logged = 0
}

const record = ({ handle, events }) => (handle ? workers.get(handle) : listeners.get(events)).record

const commands = {
  redis: ({ args }) => redis.call(...args),
  queue: async request => plain(await queue(request)[request.method](...(request.args ?? []))),
  job: async request => {
    const job = await queue(request).getJob(request.jobId)
    if (!job) throw new Error(`there is no job ${request.jobId}`)
    return plain(await job[request.method](...(request.args ?? [])))
  },
  result: async request => {
    const job = await queue(request).getJob(request.jobId)
    return plain(await job.waitUntilFinished(listeners.get(request.queue).source))
  },
  flow: async ({ flow }) => plain((await flows.add(flow)).job),
  worker: openWorker,
  workerCall: async ({ handle, method, args = [] }) => plain(await workers.get(handle).worker[method](...args)),
  spans: () => spans.splice(0),
  listen,
  release,
  closeWorker,
  until: request => record(request).until(request.match ?? {}, request.count ?? 1),
  seen: request => record(request).matching(request.match ?? {}),
  board: request => board(request.queues.map(name => queue({ queue: name })), request),
  versions: () => ({ node: process.versions.node, bullmq: require(`${library}/package.json`).version }),
  reset
}

async function answer(line) {
  const request = JSON.parse(line)
  let reply
  try {
    const command = commands[request.do]
    if (!command) throw new Error(`there is no command ${request.do}`)
    reply = { id: request.id, ok: (await command(request)) ?? null }
  } catch (error) {
    reply = { id: request.id, error: String(error?.stack ?? error) }
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`)
}

createInterface({ input: process.stdin }).on('line', answer).on('close', () => process.exit(0))
