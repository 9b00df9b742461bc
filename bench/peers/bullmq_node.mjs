// BullMQ for Node: no-op jobs added in bulk and worked off, or the time until a job of another process starts.
//
//   node bullmq_node.mjs MODULES PORT drain|latency|produce JOBS CONCURRENCY     prints one JSON object

import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'

const [modules, port, what, wanted, concurrency] = process.argv.slice(2)
const { Queue, Worker } = createRequire(`${modules}/`)('bullmq')
const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null }
const jobs = Number(wanted)
const data = { user_id: 12345, email: 'someone@example.org', text: 'x'.repeat(50) }
const seconds = () => Number(process.hrtime.bigint()) / 1e9
const used = () => { const { user, system } = process.cpuUsage(); return (user + system) / 1e6 }

// A worker that hands each job to `each` until that says so, and then is closed.
async function work(name, slots, each) {
  await new Promise(resolve => {
    const worker = new Worker(name, async job => { if (each(job)) resolve(worker) }, { connection, concurrency: slots })
    worker.on('error', () => {})
  }).then(worker => worker.close())
}

async function drain() {
  const queue = new Queue('drain', { connection })
  const began = seconds()
  for (let at = 0; at < jobs; at += 1000) {
    await queue.addBulk(Array.from({ length: Math.min(1000, jobs - at) }, () => ({ name: 'noop', data })))
  }
  const add = seconds() - began
  const before = used()
  let done = 0, first = 0, last = 0
  await work('drain', Number(concurrency), () => {
    if (++done === 1) first = seconds()
    if (done === jobs) last = seconds()
    return done === jobs
  })
  const cpu = used() - before
  await queue.close()
  return { jobs, add, drain: last - first, cpu }
}

async function latency() {
  const found = []
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), modules, port, 'produce', wanted, concurrency])
  await work('latency', Number(concurrency), job => found.push(seconds() - job.data.at) === jobs)
  if (child.exitCode === null) await new Promise(resolve => child.once('exit', resolve))
  const ordered = found.sort((a, b) => a - b)
  const at = share => ordered[Math.min(jobs - 1, Math.round(jobs * share))] * 1000
  return { jobs, p50: at(0.5), p99: at(0.99) }
}

async function produce() {
  const queue = new Queue('latency', { connection })
  const pause = ms => new Promise(resolve => setTimeout(resolve, ms))
  await pause(1000)
  for (let n = 0; n < jobs; n++) {
    await queue.add('noop', { at: seconds() })
    await pause(5 + Math.random() * 15)
  }
  await queue.close()
}

const answer = await { drain, latency, produce }[what]()
if (answer) console.log(JSON.stringify(answer))
process.exit(0)
