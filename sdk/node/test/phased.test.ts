/** Requests in phases: results, leases and lost commits. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, afterEach, before, describe, test } from "node:test";
import { RESPONSE_BYTES_MAX } from "#dist/core/limits";
import { Problem, UsageError } from "hapax";
import { kysely } from "hapax/kysely";
import { phased } from "hapax/phased";
import { postgresJs } from "hapax/postgres-js";
import { FaultProxy } from "hapax/testing";
import { CompiledQuery, Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { until } from "./support/http.js";
import { charge, insert, remove } from "./support/payments.js";
import { Bench, problemWith, request, type Work } from "./support/phased.js";

let bench: Bench;

before(async () => {
  bench = await Bench.open();
});
afterEach(() => {
  bench.provider.decide = () => "charge";
});
after(() => bench.close());

test("a payment is made once, and replayed", async () => {
  const key = randomUUID();
  const first = await bench.payment(key);
  assert.deepEqual([first.outcome, first.status], ["stored", 201]);
  assert.equal(
    first.body.toString(),
    bench.provider.charges.get(bench.provider.calls.at(-1) ?? ""),
  );
  const calls = bench.provider.calls.length;
  const second = await bench.payment(key);
  assert.deepEqual([second.outcome, second.status], ["replayed", 201]);
  assert.deepEqual(second.body, first.body);
  assert.equal(bench.provider.calls.length, calls);
  assert.equal(await bench.rows(key), 2);
  const { rows: events } = await bench.db.pool.query<{ tenant: string; headers: string }>(
    "SELECT tenant, headers FROM hapax.outbox_event WHERE aggregate_id = $1",
    [key],
  );
  assert.equal(events.length, 1);
  assert.equal(events[0]?.tenant, "demo");
  assert.match(events[0].headers, /idempotency_key_hash/);
  await assert.rejects(
    phased(bench.pool, request(key, "[]"), () => Promise.reject(new Error("it ran"))),
    problemWith(409, "CONFLICT.idempotency.payload_mismatch"),
  );
});

test("the next owner continues after the last phase, with its results", async () => {
  const key = randomUUID();
  const seen: unknown[] = [];
  const work: Work = async (phases) => {
    seen.push([phases.recoveryPoint, phases.isResumed]);
    const order = await phases.transaction("reserved", async (tx) => {
      await insert(tx, key);
      return { id: key, at: new Date(0) };
    });
    seen.push(order);
    if (!phases.isResumed) throw new Error("the process is in trouble");
    return { status: 201 };
  };
  await assert.rejects(bench.run(key, work), /the process is in trouble/);
  assert.deepEqual(await bench.row(key), {
    state: "in_progress",
    epoch: 1,
    recovery_point: "reserved",
    recovery_data: { reserved: { id: key, at: "1970-01-01T00:00:00.000Z" } },
    is_free: true,
  });
  assert.equal((await bench.run(key, work)).status, 201);
  const order = { id: key, at: "1970-01-01T00:00:00.000Z" };
  assert.deepEqual(seen, [[undefined, false], order, ["reserved", true], order]);
  assert.equal(await bench.rows(key), 1);
});

test("the lease is renewed while the handler runs", async () => {
  const key = randomUUID();
  let held: boolean | undefined;
  const work: Work = async (phases) => {
    const { rows: leases } = await bench.db.pool.query<{ until: string }>(
      "SELECT lease_until::text AS until FROM hapax.idempotency_key WHERE key = $1",
      [key],
    );
    const isRenewed = async (): Promise<boolean> => {
      const { rows: later } = await bench.db.pool.query<{ is_over: boolean; n: string }>(
        `SELECT clock_timestamp() > $2::timestamptz + interval '1 second' AS is_over
         FROM hapax.idempotency_key WHERE key = $1`,
        [key, leases[0]?.until],
      );
      return later[0]?.is_over === true;
    };
    await until(isRenewed, "the time of several leases");
    const duplicate = bench.run(key, () => Promise.reject(new Error("it ran")));
    await assert.rejects(duplicate, problemWith(409, "CONFLICT.idempotency.in_progress"));
    held = phases.isHeld();
    return { status: 201 };
  };
  assert.equal((await bench.run(key, work, { leaseMs: 400 })).status, 201);
  assert.equal(held, true);
  assert.equal((await bench.row(key))?.epoch, 1);
});

test("a phase that was undone runs again", async () => {
  const key = randomUUID();
  const work: Work = async (phases) => {
    await phases.transaction("reserved", (tx) => insert(tx, key));
    if (phases.isResumed) return { status: 201 };
    await phases.undo("reserved", (tx) => remove(tx, key));
    throw new Error("later");
  };
  await assert.rejects(bench.run(key, work), /later/);
  assert.equal(await bench.rows(key), 0);
  assert.equal((await bench.run(key, work)).status, 201);
  assert.equal(await bench.rows(key), 1);
});

test("the last transaction is committed with the response, or not at all", async () => {
  for (const [status, count] of [
    [201, 1],
    [409, 0],
    [500, 0],
  ] as const) {
    const key = randomUUID();
    const ended = await bench.run(key, async (phases) => {
      const tx = await phases.last();
      await insert(tx, key);
      await tx.emit("order.created", { id: key }, { aggregate: { type: "order", id: key } });
      return { status };
    });
    assert.equal(ended.outcome, status === 500 ? "unstored" : "stored");
    assert.equal(await bench.rows(key), count);
    assert.equal(await bench.db.count(`hapax.outbox_event WHERE aggregate_id = '${key}'`), count);
  }
});

test("a phase that fails writes nothing, and the handler may go on", async () => {
  const key = randomUUID();
  const ended = await bench.run(key, async (phases) => {
    const failed = phases.transaction("reserved", async (tx) => {
      await insert(tx, key);
      await tx.query("SELECT 1 / 0");
    });
    await assert.rejects(failed, /division by zero/);
    const swallowed = phases.transaction("reserved", async (tx) => {
      await insert(tx, key);
      await tx.query("SELECT 1 / 0").catch(() => undefined);
    });
    await assert.rejects(swallowed);
    const ended = phases.transaction("reserved", async (tx) => {
      await tx.query("ROLLBACK");
    });
    await assert.rejects(ended, UsageError);
    assert.equal(phases.recoveryPoint, undefined);
    return { status: 201 };
  });
  assert.equal(ended.status, 201);
  assert.equal(await bench.rows(key), 0);
});

test("a response that is too long to be stored does not say that nothing was changed", async () => {
  const key = randomUUID();
  const work: Work = async (phases) => {
    await phases.transaction("reserved", (tx) => insert(tx, key));
    return { status: 201, body: Buffer.alloc(RESPONSE_BYTES_MAX + 1) };
  };
  await assert.rejects(bench.run(key, work), /what this request has committed is kept/);
  assert.equal(await bench.rows(key), 1);
  assert.equal((await bench.row(key))?.is_free, true);
});

test("a last transaction that the database refuses does not say that nothing was changed", async () => {
  const key = randomUUID();
  const table = "CREATE TABLE single (id text PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)";
  await bench.db.pool.query(table);
  const work: Work = async (phases) => {
    await phases.transaction("reserved", (tx) => insert(tx, key));
    await (await phases.last()).query("INSERT INTO single VALUES ('a'), ('a')");
    return { status: 201 };
  };
  await assert.rejects(bench.run(key, work), /what this request has committed is kept/);
  assert.equal(await bench.rows(key), 1);
  assert.equal((await bench.row(key))?.is_free, true);
});

test("a result that JSON does not have is refused, and nothing is committed", async () => {
  const key = randomUUID();
  await bench.run(key, async (phases) => {
    const results = [(): unknown => 1n, () => NaN, () => new Map(), () => [{ at: () => 1 }]];
    for (const result of results) {
      const refused = phases.transaction("reserved", async (tx) => {
        await insert(tx, key);
        return result();
      });
      await assert.rejects(refused, /the result of "reserved" is stored as JSON/);
    }
    for (const result of ["a\0", ["\udfff"], Array(400_000).fill(1)]) {
      const refused = phases.transaction("reserved", () => Promise.resolve(result));
      await assert.rejects(refused, UsageError);
    }
    const statement = phases.transaction("reserved", (tx) => tx.query("SELECT 1"));
    await assert.rejects(statement, UsageError);
    return { status: 201 };
  });
  assert.equal(await bench.rows(key), 0);
});

test("phases run one after the other", async () => {
  await bench.run(randomUUID(), async (phases) => {
    const inner = phases.transaction("outer", () =>
      phases.transaction("inner", () => Promise.resolve()),
    );
    await assert.rejects(inner, UsageError);
    const [, second] = await Promise.allSettled([phases.last(), phases.last()]);
    assert.ok(second.status === "rejected" && second.reason instanceof UsageError);
    return { status: 201 };
  });
});

test("a phase and a call have different names", async () => {
  const key = randomUUID();
  await bench.run(key, async (phases) => {
    const call = (): Promise<string> => Promise.resolve("called");
    assert.equal(await phases.call("first", call), "called");
    const phase = phases.transaction("first", (tx) => insert(tx, key));
    await assert.rejects(phase, /"first" is the name of a phase and of a call/);
    await phases.transaction("second", (tx) => insert(tx, key));
    await assert.rejects(phases.call("second", call), UsageError);
    return { status: 201 };
  });
  assert.equal(await bench.rows(key), 1);
});

test("a name that ends as a record of the package does is refused", async () => {
  const key = randomUUID();
  const nothing = (): Promise<undefined> => Promise.resolve(undefined);
  for (const name of [
    "mark order undone",
    "charge called",
    "charge called undone",
    "a\0",
    "\ud800",
  ]) {
    await bench
      .run(key, async (phases) => {
        const refused = [
          () => phases.transaction(name, (tx) => insert(tx, key)),
          () => phases.call(name, nothing),
          () => phases.undo(name, nothing),
        ];
        for (const use of refused) await assert.rejects(use, UsageError, name);
        throw new Problem("VALIDATION.member", "not this amount", { member: "amount" });
      })
      .catch(() => undefined);
    assert.equal(await bench.row(key), undefined, name);
  }
  assert.equal(await bench.rows(key), 0);
  await bench.run(key, async (phases) => {
    await phases.transaction("undone", (tx) => insert(tx, key));
    await phases.call("called", nothing);
    return { status: 201 };
  });
  assert.equal(await bench.rows(key), 1);
});

test("a recovery point of another program is not guessed at", async () => {
  const key = randomUUID();
  await bench.crash(key, (phases) => phases.transaction("charged", (tx) => insert(tx, key)));
  await bench.db.pool.query(
    "UPDATE hapax.idempotency_key SET recovery_data = NULL WHERE key = $1",
    [key],
  );
  const reserve: Work = async (phases) => {
    await phases.transaction("reserved", () => Promise.resolve());
    return { status: 201 };
  };
  await assert.rejects(bench.run(key, reserve), /stores no results of phases/);
  const go: Work = async (phases) => {
    await phases.transaction("charged", () => Promise.reject(new Error("it ran again")));
    await phases.transaction("recorded", (tx) => insert(tx, `${key}-2`));
    return { status: 201 };
  };
  assert.equal((await bench.run(key, go)).status, 201);
  assert.equal(await bench.rows(key), 2);
});

describe("a connection that breaks during a commit", () => {
  for (const [what, text, status] of [
    ["of a phase", "hapax.phase", 503],
    ["of the response", "hapax.finish", 201],
    ["of the last transaction", "hapax.finish", 201],
  ] as const) {
    for (const fault of ["lose-request", "lose-response"] as const) {
      test(`${fault} ${what}`, async () => {
        const key = randomUUID();
        const proxy = await FaultProxy.start(bench.db.url);
        const broken = new pg.Pool({ connectionString: proxy.url, max: 3 });
        broken.on("error", () => undefined);
        const work: Work = async (phases) => {
          await phases.transaction("reserved", (tx) => insert(tx, key));
          if (what === "of the last transaction") {
            await insert(await phases.last(), `${key}-2`);
          }
          return { status: 201 };
        };
        let isLost = false;
        proxy.decide = (message) => {
          if (isLost || !message.includes(text)) return "pass";
          isLost = true;
          return fault;
        };
        try {
          const first = phased(broken, request(key), work);
          const isGone = fault === "lose-request" && what === "of the last transaction";
          if (status === 503 || isGone) {
            await assert.rejects(first, problemWith(503, "DEPENDENCY.unavailable"));
          } else {
            assert.equal((await first).outcome, "stored");
          }
          assert.equal((await phased(bench.pool, request(key), work)).status, 201);
          assert.equal(await bench.rows(key), what === "of the last transaction" ? 2 : 1);
        } finally {
          await proxy.stop();
          await broken.end();
        }
      });
    }
  }
});

test("an ORM and a driver without batches run phases too", async () => {
  const sql = postgres(bench.db.url, { max: 3, onnotice: () => undefined });
  const orm = new Kysely<object>({ dialect: new PostgresDialect({ pool: bench.pool }) });
  const text = (id: string): string =>
    `INSERT INTO orders (id, tenant, item, amount) VALUES ('${id}', 'demo', 'tea', 5)`;
  try {
    const [one, two] = [randomUUID(), randomUUID()];
    const first = await phased(kysely(orm), request(one), async (phases) => {
      await phases.transaction("reserved", async (tx) => {
        await tx.executeQuery(CompiledQuery.raw(text(one)));
      });
      const tx = await phases.last();
      await tx.executeQuery(CompiledQuery.raw(text(`${one}-2`)));
      return { status: 201 };
    });
    const second = await phased(postgresJs(sql), request(two), async (phases) => {
      await phases.transaction("reserved", async (tx) => {
        await tx.unsafe(text(two));
        await tx.emit(
          "order.created",
          { id: two },
          { ordered: true, aggregate: { type: "o", id: two } },
        );
      });
      await phases.call("charge", (key) => charge(bench.provider.url, key));
      return { status: 201 };
    });
    assert.deepEqual([first.outcome, second.outcome], ["stored", "stored"]);
    assert.deepEqual([await bench.rows(one), await bench.rows(two)], [2, 1]);
  } finally {
    await sql.end();
  }
});
