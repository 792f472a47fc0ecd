// graphile-worker: drains jobs that do nothing, with the settings of graphile-worker's benchmark.
//
//   node drain.js fill URL JOBS               the schema, and the jobs
//   node drain.js drain URL JOBS PROCESSES    prints {"seconds": ...}
//
// The time is measured from the first fetch until every job is done and committed. Processes are
// started and the library is loaded before.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Logger, runMigrations, runOnce } from 'graphile-worker'
import pg from 'pg'

const CONCURRENT_JOBS = 24
const FILL = 50_000

const settings = (connectionString) => ({
  preset: {
    worker: {
      connectionString,
      concurrentJobs: CONCURRENT_JOBS,
      maxPoolSize: CONCURRENT_JOBS + 1,
      localQueue: { size: 500, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  logger: new Logger(() => () => {}),
  noHandleSignals: true,
})

async function fill(url, jobs) {
  await runMigrations(settings(url))
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  for (let first = 0; first < jobs; first += FILL) {
    const last = Math.min(first + FILL, jobs) - 1
    await client.query(
      `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
         SELECT json_populate_record(NULL::graphile_worker.job_spec, json_build_object(
           'identifier', 'nothing',
           'payload', json_build_object('n', n, 'customer_id', 'cus_bench', 'amount', 1299,
                                        'currency', 'EUR', 'note', 'two mugs, blue')))
         FROM generate_series($1::int8, $2::int8) AS n))`,
      [first, last],
    )
  }
  await client.end()
}

// One of several processes: loads everything, reports that it is ready, and waits for the start.
async function work(url) {
  let done = 0
  process.send('ready')
  await once(process, 'message')
  await runOnce(settings(url), { nothing: () => { done += 1 } })
  process.send(done)
  process.disconnect()
}

async function drain(url, jobs, processes) {
  const workers = Array.from({ length: processes }, () => fork(process.argv[1], ['work', url]))
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  const start = process.hrtime.bigint()
  const ended = workers.map((worker) => once(worker, 'message'))
  for (const worker of workers) worker.send('go')
  const done = (await Promise.all(ended)).reduce((sum, [count]) => sum + count, 0)
  const seconds = Number(process.hrtime.bigint() - start) / 1e9
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const { rows } = await client.query('SELECT count(*)::int4 AS left FROM graphile_worker.jobs')
  await client.end()
  if (done !== jobs || rows[0].left !== 0) {
    throw new Error(`${done} jobs were done of ${jobs}, and ${rows[0].left} are left`)
  }
  console.log(JSON.stringify({ seconds }))
}

const [part, url, jobs, processes] = process.argv.slice(2)
if (part === 'fill') await fill(url, Number(jobs))
else if (part === 'work') await work(url)
else await drain(url, Number(jobs), Number(processes ?? 1))
