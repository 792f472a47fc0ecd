/** Requests in phases whose time is over while a statement runs, with every driver and ORM. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { phased, type PhasedResult } from "hapax/phased";
import * as drivers from "./support/drivers.js";
import { Bench, isUnknown, request } from "./support/phased.js";

const DRIVERS: Record<string, drivers.Driver> = {
  pg: drivers.openPg,
  "postgres.js": drivers.openPostgresJs,
  "postgres.js without prepared statements": drivers.openPostgresJsUnprepared,
  kysely: drivers.openKysely,
  "drizzle on pg": drivers.openDrizzlePg,
  "drizzle on postgres.js": drivers.openDrizzlePostgresJs,
  prisma: drivers.openPrisma,
  typeorm: drivers.openTypeorm,
  knex: drivers.openKnex,
};

let bench: Bench;

before(async () => {
  bench = await Bench.open();
});
after(() => bench.close());

for (const [name, open] of Object.entries(DRIVERS)) {
  test(`${name}: a statement that runs when the request ends is rolled back`, async () => {
    const key = randomUUID();
    const opened = await open(bench.db.url);
    const holder = await bench.pool.connect();
    let late: Promise<unknown> | undefined;
    const pay = (handlerMs: number): Promise<PhasedResult> =>
      phased(
        opened.database,
        request(key),
        async (phases) => {
          const phase = phases.transaction("paid", async (tx) => {
            await opened.insert(tx, key, "book", 5);
          });
          late = phase.catch((error: unknown) => error);
          await phase;
          return { status: 201 };
        },
        { handlerMs },
      );
    try {
      await holder.query("BEGIN");
      await holder.query("LOCK TABLE orders IN EXCLUSIVE MODE");
      // The statement waits until the lock is released, which is after the response.
      await assert.rejects(pay(1_000), isUnknown);
      await holder.query("ROLLBACK");
      assert.ok((await late) instanceof Error);
      assert.equal(await bench.rows(key), 0);
      const retried = await pay(30_000);
      assert.equal(retried.outcome, "stored");
      assert.equal(await bench.rows(key), 1);
    } finally {
      holder.release();
      // Ends only if every connection was returned.
      await opened.close();
    }
  });
}
