/** Owners that have lost their key: what they commit, and how they respond. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { FencedError } from "hapax";
import { phased } from "hapax/phased";
import { FaultProxy } from "hapax/testing";
import pg from "pg";
import { until } from "./support/http.js";
import { insert } from "./support/payments.js";
import { Bench, request, type Work } from "./support/phased.js";

let bench: Bench;

before(async () => {
  bench = await Bench.open();
});
after(() => bench.close());

test("a late owner is fenced, and receives the response of the new one", async () => {
  const key = randomUUID();
  const proxy = await FaultProxy.start(bench.db.url);
  const slow = new pg.Pool({ connectionString: proxy.url, max: 5 });
  slow.on("error", () => undefined);
  slow.on("connect", (client) => client.on("error", () => undefined));
  try {
    let wake!: () => void;
    const sleep = new Promise<void>((resolve) => (wake = resolve));
    let fenced: unknown;
    const late = phased(
      slow,
      request(key),
      async (phases) => {
        await phases.transaction("reserved", (tx) => insert(tx, key));
        // The process is suspended, and its renewals do not arrive.
        proxy.decide = (text) => (text.includes("hapax.renew") ? "hold" : "pass");
        await sleep;
        assert.equal(phases.isHeld(), false);
        const written = phases.transaction("late", (tx) => insert(tx, `${key}-late`));
        fenced = await written.catch((error: unknown) => error);
        throw fenced;
      },
      { leaseMs: 200 },
    );
    await until(async () => (await bench.row(key))?.recovery_point === "reserved", "the phase");
    const resumed = await phased(bench.pool, request(key), async (phases) => {
      assert.deepEqual([phases.recoveryPoint, phases.isResumed], ["reserved", true]);
      return { status: 201, body: "of the new owner" };
    });
    assert.equal(resumed.outcome, "stored");
    wake();
    const replay = await late;
    assert.deepEqual([replay.outcome, replay.body.toString()], ["replayed", "of the new owner"]);
    assert.ok(fenced instanceof FencedError);
    assert.match(fenced.message, /another process has taken the request over/);
    assert.equal(await bench.rows(key), 1);
  } finally {
    await proxy.stop();
    await slow.end();
  }
});

test("a late owner with another header responds with the header that is stored", async () => {
  const key = randomUUID();
  const created = (by: string) => ({
    status: 201,
    headers: [["location", `/by/${by}`]] as [string, string][],
    body: "ok",
  });
  const late = await bench.run(key, async () => {
    await bench.db.pool.query(
      "UPDATE hapax.idempotency_key SET lease_until = date_trunc('milliseconds', clock_timestamp()) WHERE key = $1",
      [key],
    );
    const resumed = await bench.run(key, () => Promise.resolve(created("new")));
    assert.equal(resumed.outcome, "stored");
    return created("late");
  });
  const location = late.headers.find(([name]) => name === "location")?.[1];
  assert.deepEqual([late.outcome, late.status, location], ["replayed", 201, "/by/new"]);
});

test("a late owner without a new response receives the error of the fence", async () => {
  const key = randomUUID();
  const work: Work = async (phases) => {
    await bench.db.pool.query(
      "UPDATE hapax.idempotency_key SET epoch = 2, lease_until = 'infinity' WHERE key = $1",
      [key],
    );
    await phases.transaction("late", (tx) => insert(tx, key));
    return { status: 201 };
  };
  await assert.rejects(bench.run(key, work), FencedError);
  assert.equal(await bench.rows(key), 0);
  assert.equal((await bench.row(key))?.epoch, 2);
});
