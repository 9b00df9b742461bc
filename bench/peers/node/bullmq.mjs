// BullMQ for Node: the same commands as the adapters in Python have (bench/peers/adapter.py).
//
//   node bullmq.mjs MODULES one|many|trickle|work NUMBER [KIND]

import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'

const [modules, verb, number, kind = 'noop'] = process.argv.slice(2)
const { Queue, Worker } = createRequire(`${modules}/`)('bullmq')
const { hostname: host, port } = new URL(process.env.BENCH_URL)
const connection = { host, port: Number(port), maxRetriesPerRequest: null }
const wanted = Number(number)
// What Toril gives every job by default; without it BullMQ tries a job once, and keeps it for ever.
const alike = { attempts: 5, backoff: { type: 'exponential', delay: 1000 }, removeOnComplete: true, removeOnFail: true }
const defaultJobOptions = process.env.BENCH_OPTIONS === 'alike' ? alike : {}
const data = { user_id: 12345, email: 'someone@example.org', text: 'x'.repeat(50) }
const seconds = () => Number(process.hrtime.bigint()) / 1e9
const used = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e6 }
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

// The board: Node maps no memory, so that what has been written down goes to the file a hundred times a second.
function marker() {
  const slots = Number(process.env.TORIL_BENCH_SLOTS)
  const file = path.join(process.env.TORIL_BENCH_BOARD, String(process.pid))
  const pairs = new Float64Array(slots * 2)
  fs.writeFileSync(`${file}.new`, '')
  fs.truncateSync(`${file}.new`, slots * 16)
  fs.renameSync(`${file}.new`, file)
  const handle = fs.openSync(file, 'r+')
  let filled = 0, written = 0
  setInterval(() => {
    if (filled === written) return
    fs.writeSync(handle, new Uint8Array(pairs.buffer, written * 16, (filled - written) * 16), 0, undefined, written * 16)
    written = filled
  }, 10)
  return (first, second) => {
    if (filled === slots) return
    pairs[filled * 2] = first
    pairs[filled * 2 + 1] = second
    filled += 1
  }
}

function work() {
  const mark = marker()
  const handler = async job => {
    const started = seconds()
    if (job.name === 'io') {
      await pause(10)
      mark(started, seconds())
    } else mark(started, job.data.at ?? 0)
  }
  const worker = new Worker('bench', handler, { connection, concurrency: wanted })
  worker.on('error', () => {})
  process.on('SIGTERM', async () => { await worker.close(); process.exit(0) }) // what it runs has ended
}

const adding = {
  async one(queue) {
    for (let n = 0; n < wanted; n++) await queue.add(kind, data)
  },
  async many(queue) {
    for (let at = 1; at < wanted; at += 1000) {
      await queue.addBulk(Array.from({ length: Math.min(1000, wanted - at) }, () => ({ name: kind, data })))
    }
  },
  async trickle(queue) {
    for (let n = 0; n < wanted; n++) {
      await queue.add(kind, { at: seconds() })
      await pause(5 + Math.random() * 15)
    }
  },
}

async function add() {
  const queue = new Queue('bench', { connection, defaultJobOptions })
  if (verb === 'many') await queue.add(kind, data) // connected, and scripts loaded
  const began = seconds(), before = used()
  await adding[verb](queue)
  console.log(JSON.stringify({ jobs: wanted, seconds: seconds() - began, cpu: used() - before }))
  process.exit(0)
}

if (verb === 'work') work()
else await add()
