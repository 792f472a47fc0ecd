/** What must hold for every framework and for every driver. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { assertReplay, FaultProxy, type Fault } from "hapax/testing";
import { scratch, type Scratch } from "./database.js";
import type { Driver, Opened } from "./drivers.js";
import type { Settings, Shop, Start } from "./frameworks.js";
import { problemIn, send, until } from "./http.js";
import { BYTES, gate, keptTx } from "./shop.js";

/** What is between a service and its database, such as a pooler. */
export type Through = (url: string) => Promise<{ url: string; stop(): Promise<void> }>;

/** No pooler. */
const directly: Through = async (url) => ({ url, stop: async () => undefined });

/** Runs the suite for one framework with one driver. */
export function suite(name: string, start: Start, open: Driver, through = directly): void {
  describe(name, () => {
    let db: Scratch;
    /** The database as services see it. */
    let served: Awaited<ReturnType<Through>>;
    let shop: Shop;
    let driver: Opened;
    const others: (() => Promise<void>)[] = [];

    before(async () => {
      db = await scratch();
      served = await through(db.url);
      driver = await open(served.url);
      shop = await start(driver.database, driver.insert, { waitMs: 5_000 });
    });
    after(async () => {
      await shop.stop();
      for (const stop of others.reverse()) await stop();
      await driver.close();
      await served.stop();
      await db.drop();
    });

    const another = async (url: string, settings: Settings): Promise<Shop> => {
      const opened = await open(url);
      others.push(() => opened.close());
      const started = await start(opened.database, opened.insert, settings);
      others.push(() => started.stop());
      return started;
    };
    const orders = async (id: string): Promise<number> => db.count(`orders WHERE id LIKE '${id}%'`);
    const events = async (id: string): Promise<number> =>
      db.count(`hapax.outbox_event WHERE aggregate_id = '${id}'`);
    const expectNothing = async (id: string): Promise<void> => {
      assert.deepEqual([await orders(id), await events(id)], [0, 0]);
    };
    const expectOnce = async (id: string): Promise<void> => {
      assert.deepEqual([await orders(id), await events(id)], [1, 1]);
    };

    test("the first response is stored, and a retry receives it byte for byte", async () => {
      const [key, id] = [randomUUID(), randomUUID()];
      const first = await send(shop.url, { key, body: { id } });
      assert.equal(first.status, 201, first.body.toString());
      assert.equal(first.headers["idempotency-status"], "stored");
      assert.equal(first.headers["idempotency-key"], key);
      assert.equal(first.headers["x-caf"], "caf\u00e9");
      assert.match(first.headers["set-cookie"] ?? "", /a=1.*b=2/);
      const retry = await send(shop.url, { key: `"${key}"`, body: `{ "id" : "${id}" }` });
      assertReplay(first, retry);
      assert.equal(retry.headers["set-cookie"], undefined);
      await expectOnce(id);
    });

    test("another body or path under the key is a mismatch", async () => {
      const [key, id] = [randomUUID(), randomUUID()];
      await send(shop.url, { key, body: { id } });
      for (const other of [
        { key, body: { id, amount: 6 } },
        { key, body: { id }, shop: "two" },
      ]) {
        const refused = await send(shop.url, other);
        assert.equal(refused.status, 409);
        assert.equal(problemIn(refused).code, "CONFLICT.idempotency.payload_mismatch");
        assert.equal(refused.headers["idempotency-key"], key);
      }
      await expectOnce(id);
    });

    test("a duplicate that does not wait is refused as in progress", async () => {
      const [key, id] = [randomUUID(), randomUUID()];
      const held = gate(id);
      const hasty = await another(served.url, { waitMs: 0 });
      const first = send(shop.url, { key, body: { id, act: "wait" } });
      await held.reached;
      const duplicate = await send(hasty.url, { key, body: { id, act: "wait" } });
      assert.equal(duplicate.status, 409, duplicate.body.toString());
      assert.equal(problemIn(duplicate).code, "CONFLICT.idempotency.in_progress");
      assert.equal(problemIn(duplicate).retryable, true);
      assert.ok(Number(duplicate.headers["retry-after"]) >= 1);
      const waiting = send(shop.url, { key, body: { id, act: "wait" } });
      held.open();
      assertReplay(await first, await waiting);
      await expectOnce(id);
    });

    test("a handler that throws releases the key", async () => {
      for (const act of ["throw-before", "throw-after", "violate", "invalid"] as const) {
        const [key, id] = [randomUUID(), randomUUID()];
        const failed = await send(shop.url, { key, body: { id, act } });
        assert.equal(
          failed.status,
          act === "invalid" ? 400 : 500,
          `${act}: ${failed.body.toString()}`,
        );
        assert.equal(failed.headers["idempotency-status"], undefined);
        assert.equal(problemIn(failed).request_id, failed.headers["x-request-id"]);
        if (act === "violate") assert.equal(problemIn(failed).code, "INTERNAL.statement");
        await expectNothing(id);
        const corrected = await send(shop.url, { key, body: { id } });
        assert.equal(corrected.status, 201, act);
        await expectOnce(id);
      }
    });

    test("a refusal is stored without its effect, also after a statement that failed", async () => {
      for (const act of ["refuse", "swallow"] as const) {
        const [key, id] = [randomUUID(), randomUUID()];
        const refused = await send(shop.url, { key, body: { id, act } });
        assert.equal(refused.status, 409, `${act}: ${refused.body.toString()}`);
        assert.equal(problemIn(refused).code, "CONFLICT.state");
        assert.equal(refused.headers["idempotency-status"], "stored");
        assert.equal(refused.headers["retry-after"], undefined);
        assertReplay(refused, await send(shop.url, { key, body: { id, act } }));
        await expectNothing(id);
      }
    });

    test("two hundred duplicates have one effect", async () => {
      const [key, id] = [randomUUID(), randomUUID()];
      const all = await Promise.all(
        Array.from({ length: 200 }, () => send(shop.url, { key, body: { id } })),
      );
      const stored = all.filter((each) => each.status === 201);
      const others = all.filter((each) => each.status !== 201);
      assert.equal(
        stored.filter((each) => each.headers["idempotency-status"] === "stored").length,
        1,
      );
      assert.equal(new Set(stored.map((each) => each.body.toString())).size, 1);
      for (const each of others)
        assert.equal(problemIn(each).code, "CONFLICT.idempotency.in_progress");
      await expectOnce(id);
    });

    test("binary bodies, streams and empty bodies are replayed byte for byte", async () => {
      for (const act of ["binary", "stream", "empty"] as const) {
        const [key, id] = [randomUUID(), randomUUID()];
        const first = await send(shop.url, { key, body: { id, act } });
        assert.equal(
          first.status,
          act === "empty" ? 204 : 200,
          `${act}: ${first.body.toString().slice(0, 200)}`,
        );
        assert.equal(
          first.body.length,
          act === "empty" ? 0 : BYTES.length,
          `${act}: ${first.body.toString("latin1", 0, 100)}`,
        );
        assert.ok(first.body.equals(act === "empty" ? Buffer.alloc(0) : BYTES), act);
        assertReplay(first, await send(shop.url, { key, body: { id, act } }));
        await expectOnce(id);
      }
    });

    test("a response that cannot be stored is refused without its effect", async () => {
      for (const act of ["events", "big"] as const) {
        const [key, id] = [randomUUID(), randomUUID()];
        const refused = await send(shop.url, { key, body: { id, act } });
        assert.equal(refused.status, 500, `${act}: ${refused.body.toString().slice(0, 200)}`);
        assert.equal(
          problemIn(refused).code,
          act === "big" ? "TRANSIENT.response_too_large" : "INTERNAL",
        );
        await expectNothing(id);
      }
    });

    test("the key decides whether a commit happened whose result was lost", async () => {
      for (const fault of ["lose-response", "lose-request"] as const) {
        const proxy = await FaultProxy.start(served.url);
        others.push(() => proxy.stop());
        const cut = await another(proxy.url, { waitMs: 5_000 });
        const [key, id] = [randomUUID(), randomUUID()];
        let armed = false;
        let count = 0;
        proxy.decide = (text) => {
          armed ||= text.includes("hapax.complete");
          if (!armed || !/commit/i.test(text)) return "pass";
          armed = false;
          count += 1;
          return fault;
        };
        const first = await send(cut.url, { key, body: { id } });
        assert.equal(count, 1);
        const isCommitted = fault === "lose-response";
        assert.equal(first.status, isCommitted ? 201 : 503, first.body.toString());
        if (!isCommitted) assert.equal(problemIn(first).code, "DEPENDENCY.unavailable");
        assert.equal(await orders(id), isCommitted ? 1 : 0);
        const retry = await send(shop.url, { key, body: { id } });
        assert.equal(retry.status, 201);
        if (isCommitted) assertReplay(first, retry);
        await expectOnce(id);
      }
    });

    test("a pool is refused where a transaction is needed, and a transaction where a pool is", async () => {
      assert.throws(
        driver.joinPool,
        /^UsageError: join needs .* and it was passed .*: (?:pass|call) /,
      );
      await assert.rejects(
        driver.databaseOfTransaction,
        /^UsageError: hapax needs .* because each request has its own transaction, .*: pass /,
      );
    });

    test("a transaction of the service's own can emit, accept, claim and complete", async () => {
      const id = randomUUID();
      const message = { consumer: "ledger", source: "bank", id };
      const scope = { tenant: "demo", operation: "job", key: id };
      const print = Buffer.alloc(32, 1);
      const response = { status: 200, headers: [], body: BYTES };
      await driver.joined(async (tx) => {
        assert.match(
          await tx.emit("a.b", { id }, { aggregate: { type: "order", id } }),
          /^[0-9a-f-]{36}$/,
        );
        assert.equal(await tx.accept(message, BYTES), "first");
        await tx.processed(message, "applied");
        assert.deepEqual(await tx.claim(scope, print), { outcome: "open" });
        await tx.complete(scope, response);
      });
      await driver.joined(async (tx) => {
        assert.equal(await tx.accept(message, BYTES), "duplicate");
        assert.equal(await tx.accept(message, Buffer.alloc(1)), "mismatch");
        assert.deepEqual(await tx.claim(scope, print), { outcome: "replay", response });
        assert.deepEqual(await tx.claim(scope, Buffer.alloc(32, 2)), {
          outcome: "mismatch",
        });
      });
      assert.equal(await events(id), 1);
      const rolledBack = driver.joined(async (tx) => {
        await tx.emit("a.b", { id }, { aggregate: { type: "order", id } });
        throw new Error("rolled back");
      });
      await assert.rejects(rolledBack, /rolled back/);
      assert.equal(await events(id), 1);
    });

    test("a transaction that is used after its request throws", async () => {
      const id = randomUUID();
      const first = await send(shop.url, { key: randomUUID(), body: { id, act: "keep-tx" } });
      assert.equal(first.status, 201);
      const late = async (): Promise<unknown> => driver.insert(keptTx, `${id}-late`, "tea", 1);
      await assert.rejects(late, /the transaction of this request has ended/);
      await expectOnce(id);
    });

    test("a handler that takes too long is rolled back", async () => {
      const [key, id] = [randomUUID(), randomUUID()];
      const held = gate(id);
      const headers = { "x-request-timeout": "300" };
      const late = await send(shop.url, { key, body: { id, act: "wait" }, headers });
      assert.equal(late.status, 504, late.body.toString());
      assert.equal(problemIn(late).code, "DEPENDENCY.timeout");
      held.open();
      const retry = await send(shop.url, { key, body: { id, act: "wait" } });
      assert.equal(retry.status, 201);
      await expectOnce(id);
    });

    test("a request whose time runs out before its commit begins is never committed", async () => {
      const proxy = await FaultProxy.start(served.url);
      others.push(() => proxy.stop());
      const slow = await another(proxy.url, {});
      const [key, id] = [randomUUID(), randomUUID()];
      let release!: () => void;
      const released = new Promise<void>((resolve) => (release = resolve));
      let isEnded = (): void => undefined;
      const ended = new Promise<void>((resolve) => (isEnded = resolve));
      let isHeld = false;
      const message = { isCommit: false };
      proxy.decide = async (text): Promise<Fault> => {
        if (isHeld && /commit|rollback/i.test(text)) isEnded();
        if (!text.includes("hapax.complete")) return "pass";
        isHeld = true;
        message.isCommit = /commit/i.test(text);
        await released;
        return "pass";
      };
      const headers = { "x-request-timeout": "500" };
      const deadline = performance.now() + 500;
      const sent = send(slow.url, { key, body: { id }, headers });
      await until(() => isHeld, "the response is stored");
      if (message.isCommit) {
        // COMMIT is in the same message, so the commit has begun, and its result is waited for.
        await until(() => performance.now() > deadline, "the deadline");
        release();
        const first = await sent;
        assert.deepEqual([first.status, first.headers["idempotency-status"]], [201, "stored"]);
        assertReplay(first, await send(shop.url, { key, body: { id } }));
      } else {
        const late = await sent;
        assert.equal(late.status, 504, late.body.toString());
        release();
        await ended;
        const retry = await send(shop.url, { key, body: { id } });
        assert.deepEqual([retry.status, retry.headers["idempotency-status"]], [201, "stored"]);
      }
      await expectOnce(id);
    });

    test("a request without a valid key is refused, and a GET passes", async () => {
      const missing = await send(shop.url, { body: { id: "x" } });
      assert.equal(problemIn(missing).code, "VALIDATION.idempotency_key.missing");
      const invalid = await send(shop.url, { key: "a b", body: { id: "x" } });
      assert.equal(problemIn(invalid).code, "VALIDATION.idempotency_key.invalid");
      const twice = await send(shop.url, { key: randomUUID(), body: '{"id":"x","id":"y"}' });
      assert.equal(problemIn(twice).code, "VALIDATION.json");
      const list = await fetch(`${shop.url}/shops/one/orders`);
      assert.deepEqual([list.status, await list.text()], [200, "[]"]);
      await expectNothing("x");
    });

    test("a request without a key runs unprotected if its operation allows it", async () => {
      const optional = await another(served.url, { key: "optional" });
      const id = randomUUID();
      const first = await send(optional.url, { body: { id } });
      assert.equal(first.status, 201, first.body.toString());
      assert.equal(first.headers["idempotency-status"], "bypassed");
      await expectOnce(id);
    });
  });
}
