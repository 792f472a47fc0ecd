/** Requests in phases whose time is over while they still wait or work. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { UsageError } from "hapax";
import { kysely } from "hapax/kysely";
import { phased } from "hapax/phased";
import { CompiledQuery, Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import { charge, insert } from "./support/payments.js";
import { Bench, isUnknown, request, type Work } from "./support/phased.js";

let bench: Bench;

before(async () => {
  bench = await Bench.open();
});
after(() => bench.close());

test("a handler whose time is over gives the key back, and commits nothing more", async () => {
  const key = randomUUID();
  let late: Promise<unknown> | undefined;
  const work: Work = (phases) =>
    new Promise((resolve) => {
      phases.signal.addEventListener("abort", () => {
        late = phases.transaction("late", (tx) => insert(tx, key)).catch((error: unknown) => error);
        resolve({ status: 201 });
      });
    });
  await assert.rejects(bench.run(key, work, { handlerMs: 100 }), isUnknown);
  assert.ok((await late) instanceof UsageError);
  assert.equal(await bench.rows(key), 0);
  assert.equal((await bench.row(key))?.is_free, true);
});

test("a last transaction for which the request has no time left is rolled back", async () => {
  const key = randomUUID();
  const pool = new pg.Pool({ connectionString: bench.db.url, max: 1 });
  let late: Promise<unknown> | undefined;
  const work: Work = async (phases) => {
    const busy = await pool.connect();
    late = phases.last().catch((error: unknown) => error);
    phases.signal.addEventListener("abort", () => busy.release());
    await late;
    return { status: 201 };
  };
  await assert.rejects(phased(pool, request(key), work, { handlerMs: 1_000 }), isUnknown);
  assert.ok((await late) instanceof UsageError);
  // The only connection is free.
  (await pool.connect()).release();
  await pool.end();
  assert.equal((await bench.row(key))?.is_free, true);
});

test("what waits for the database when the request ends neither calls nor commits", async () => {
  const orm = new Kysely<object>({ dialect: new PostgresDialect({ pool: bench.pool }) });
  const calls = bench.provider.calls.length;
  for (const what of ["call", "phase"] as const) {
    const key = randomUUID();
    const holder = await bench.pool.connect();
    const text = `INSERT INTO orders (id, tenant, item, amount) VALUES ('${key}', 'a', 'b', 5)`;
    let late: Promise<unknown> | undefined;
    const ended = phased(
      kysely(orm),
      request(key),
      async (phases) => {
        await holder.query("BEGIN");
        await holder.query("SELECT FROM hapax.idempotency_key WHERE key = $1 FOR UPDATE", [key]);
        phases.signal.addEventListener("abort", () => void holder.query("ROLLBACK"));
        const begun: Promise<unknown> =
          what === "call"
            ? phases.call("charge", (asked) => charge(bench.provider.url, asked))
            : phases.transaction("late", async (tx) => {
                await tx.executeQuery(CompiledQuery.raw(text));
              });
        late = begun.catch((error: unknown) => error);
        await late;
        return { status: 201 };
      },
      { handlerMs: 1_000 },
    );
    await assert.rejects(ended, isUnknown);
    assert.ok((await late) instanceof UsageError, what);
    holder.release();
    assert.equal(bench.provider.calls.length, calls);
    assert.equal(await bench.rows(key), 0);
    assert.equal((await bench.row(key))?.recovery_point, null);
  }
});

test("a call in a phase is refused at once, also if the pool has no second connection", async () => {
  const key = randomUUID();
  const pool = new pg.Pool({ connectionString: bench.db.url, max: 1 });
  const calls = bench.provider.calls.length;
  const work: Work = async (phases) => {
    const call = (): Promise<unknown> =>
      phases.call("charge", (asked) => charge(bench.provider.url, asked));
    const uses = [call, () => phases.providerKey("charge")];
    for (const use of uses) {
      const inner = phases.transaction("reserved", async (tx) => {
        await insert(tx, key);
        await use();
      });
      await assert.rejects(inner, /a phase is open/);
    }
    const undone = phases.undo("reserved", call);
    await assert.rejects(undone, /a phase is open/);
    await insert(await phases.last(), key);
    for (const use of uses) await assert.rejects(use, /the last phase is open/);
    return { status: 201 };
  };
  const ended = await phased(pool, request(key), work, { handlerMs: 5_000 });
  assert.equal(ended.outcome, "stored");
  assert.equal(bench.provider.calls.length, calls);
  assert.equal(await bench.rows(key), 1);
  await pool.end();
});

test("a phase that never settles ends with its request", async () => {
  const key = randomUUID();
  const pool = new pg.Pool({ connectionString: bench.db.url, max: 1 });
  let late: Promise<unknown> | undefined;
  const work: Work = async (phases) => {
    const never = phases.transaction("reserved", async (tx) => {
      await insert(tx, key);
      await new Promise(() => undefined);
    });
    late = never.catch((error: unknown) => error);
    await late;
    return { status: 201 };
  };
  await assert.rejects(phased(pool, request(key), work, { handlerMs: 500 }), isUnknown);
  assert.ok((await late) instanceof UsageError);
  // The only connection is free, and has given the key back.
  (await pool.connect()).release();
  assert.equal((await bench.row(key))?.is_free, true);
  assert.equal(await bench.rows(key), 0);
  await pool.end();
});

test("a statement of the last transaction that is too slow delays neither response nor key", async () => {
  const key = randomUUID();
  const holder = await bench.pool.connect();
  await holder.query("BEGIN");
  await holder.query("LOCK TABLE orders IN EXCLUSIVE MODE");
  const pool = new pg.Pool({ connectionString: bench.db.url, max: 2 });
  const work: Work = async (phases) => {
    await insert(await phases.last(), key);
    return { status: 201 };
  };
  try {
    // The statement waits until the lock is released, which is after the response.
    await assert.rejects(phased(pool, request(key), work, { handlerMs: 500 }), isUnknown);
    assert.equal((await bench.row(key))?.is_free, true);
  } finally {
    await holder.query("ROLLBACK");
    holder.release();
    await pool.end();
  }
  assert.equal(await bench.rows(key), 0);
});
