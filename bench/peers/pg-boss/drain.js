// pg-boss draining jobs that do nothing: batches, several workers, no pause while batches are full.
//
//   node drain.js fill URL JOBS            the schema, and the jobs
//   node drain.js drain URL JOBS WORKERS   prints {"seconds": ...}
//
// The time is measured from the first fetch until every job is done and committed.
import { PgBoss } from 'pg-boss'
import pg from 'pg'

const QUEUE = 'nothing'
const BATCH = 1_000
const FILL = 10_000

async function start(url) {
  const boss = new PgBoss({ connectionString: url, max: 10, supervise: false, schedule: false })
  boss.on('error', (error) => { throw error })
  await boss.start()
  return boss
}

async function fill(url, jobs) {
  const boss = await start(url)
  await boss.createQueue(QUEUE)
  for (let first = 0; first < jobs; first += FILL) {
    const length = Math.min(FILL, jobs - first)
    await boss.insert(QUEUE, Array.from({ length }, (_, i) => ({
      data: {
        n: first + i,
        customer_id: 'cus_bench',
        amount: 1299,
        currency: 'EUR',
        note: 'two mugs, blue',
      },
    })))
  }
  await boss.stop({ graceful: false })
}

async function drain(url, jobs, workers) {
  const boss = await start(url)
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  const left = `SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed') AS left`
  let done = 0
  let last
  const all = new Promise((resolve) => { last = resolve })
  const start_ = process.hrtime.bigint()
  await boss.work(
    QUEUE,
    { batchSize: BATCH, localConcurrency: workers, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
    async (batch) => {
      done += batch.length
      if (done >= jobs) last()
    },
  )
  await all
  // The last batches may not be committed yet. The end is the time before the query that finds no
  // job left.
  for (;;) {
    const looked = process.hrtime.bigint()
    const { rows } = await client.query(left)
    if (rows[0].left) continue
    await client.end()
    await boss.stop({ graceful: false })
    if (done !== jobs) throw new Error(`${done} jobs were done of ${jobs}`)
    console.log(JSON.stringify({ seconds: Number(looked - start_) / 1e9 }))
    return
  }
}

const [part, url, jobs, workers] = process.argv.slice(2)
if (part === 'fill') await fill(url, Number(jobs))
else await drain(url, Number(jobs), Number(workers ?? 4))
process.exit(0)
