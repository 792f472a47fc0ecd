/** pgbouncer in transaction mode: a request leaves nothing on a connection that others use next. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import pg from "pg";
import { scratch, type Scratch } from "./support/database.js";
import { openPg, openPostgresJsUnprepared, type Opened } from "./support/drivers.js";
import { startExpress, type Shop } from "./support/frameworks.js";
import { send, until } from "./support/http.js";
import { CONNECTIONS, startPooler, type Pooler } from "./support/pooler.js";
import { suite } from "./support/suite.js";

const KEYS = 20;
/** Requests with each key. */
const REQUESTS = 4;

suite("express with pg through pgbouncer", startExpress, openPg, startPooler);
suite(
  "express with postgres.js through pgbouncer",
  startExpress,
  openPostgresJsUnprepared,
  startPooler,
);

let db: Scratch;
let pooler: Pooler;
const drivers: Opened[] = [];
const shops: Shop[] = [];

before(async () => {
  db = await scratch();
  pooler = await startPooler(db.url);
  for (const open of [openPg, openPostgresJsUnprepared]) {
    const driver = await open(pooler.url);
    drivers.push(driver);
    shops.push(await startExpress(driver.database, driver.insert, { waitMs: 30_000 }));
  }
});
after(async () => {
  for (const shop of shops) await shop.stop();
  for (const driver of drivers) await driver.close();
  await pooler.stop();
  await db.drop();
});

test("the transactions of one client use different server connections", async () => {
  const client = new pg.Client({ connectionString: pooler.url });
  await client.connect();
  const others = [new pg.Client(pooler.url), new pg.Client(pooler.url)];
  for (const other of others) {
    await other.connect();
    await other.query("BEGIN");
  }
  for (const other of others) await other.query("COMMIT");
  const pids = new Set<number>();
  for (let at = 0; at < 2 * CONNECTIONS; at += 1) {
    const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    pids.add(rows[0]?.pid ?? 0);
  }
  for (const each of [client, ...others]) await each.end();
  assert.ok(pids.size > 1, `${pids.size} server connection`);
});

test("pg and postgres.js share a pooler, and each key has one effect", async () => {
  const ids = Array.from({ length: KEYS }, () => randomUUID());
  const all = await Promise.all(
    ids.map((id) =>
      Promise.all(
        Array.from({ length: REQUESTS }, (_, at) =>
          send(shops[at % 2]?.url ?? "", { key: id, body: { id } }),
        ),
      ),
    ),
  );
  for (const same of all) {
    for (const each of same) {
      assert.equal(each.status, 201, each.body.toString());
      assert.deepEqual(each.body, same[0]?.body);
    }
  }
  assert.equal(await db.count("orders"), KEYS);
  assert.equal(await db.count("hapax.outbox_event"), KEYS);
  // A lock of a session would remain on its server connection.
  const locks = `pg_locks WHERE locktype = 'advisory' AND database =
    (SELECT oid FROM pg_database WHERE datname = current_database())`;
  await until(async () => (await db.count(locks)) === 0, "no lock remains");
});
