/** The inbox: a message is verified, and has one effect. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { Inbox, Signer, sign, type Delivery, type Reply } from "hapax/inbox";
import type { PgTransaction } from "hapax/pg";
import pg from "pg";
import { scratch, type Scratch } from "./support/database.js";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const signer = Signer.parse(SECRET);

let db: Scratch;
let pool: pg.Pool;
let inbox: Inbox;

before(async () => {
  db = await scratch();
  pool = new pg.Pool({ connectionString: db.url, max: 10 });
  inbox = new Inbox(pool, {
    consumer: "ledger",
    sources: { bank: [SECRET], shop: [SECRET] },
    onError: () => undefined,
  });
});
after(async () => {
  await pool.end();
  await db.drop();
});

function delivery(id: string, amount: number, source = "bank", at = Date.now()): Delivery {
  const body = Buffer.from(JSON.stringify({ amount }));
  const timestamp = Math.floor(at / 1000);
  const headers = {
    "webhook-id": id,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": sign(id, timestamp, body, [signer]),
  };
  return { source, headers, body };
}

async function enter(tx: PgTransaction, id: string, amount: number): Promise<void> {
  await tx.query("INSERT INTO ledger (message_id, amount) VALUES ($1, $2)", [id, amount]);
}

function receive(sent: Delivery): Promise<Reply> {
  return inbox.receive(sent, async (tx, message) => {
    const { amount } = message.json<{ amount: number }>();
    await enter(tx, message.id, amount);
    await tx.emit("ledger.entered", { amount }, { aggregate: { type: "entry", id: message.id } });
    if (amount < 0) throw new Error("it fails");
    return "entered";
  });
}

test("two hundred copies of a message have one effect", async () => {
  const id = randomUUID();
  const replies = await Promise.all(Array.from({ length: 200 }, () => receive(delivery(id, 7))));
  assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
  assert.equal(replies.filter(({ acceptance }) => acceptance === "first").length, 1);
  assert.equal(await db.count(`ledger WHERE message_id = '${id}'`), 1);
  assert.equal(await db.count(`hapax.outbox_event WHERE aggregate_id = '${id}'`), 1);
  assert.equal(
    await db.count(`hapax.inbox_message WHERE message_id = '${id}' AND result = 'entered'`),
    1,
  );
});

test("the same id with another payload is a mismatch, and from another source another message", async () => {
  const id = randomUUID();
  await receive(delivery(id, 1));
  const mismatch = await receive(delivery(id, 2));
  assert.deepEqual([mismatch.status, mismatch.acceptance], [409, "mismatch"]);
  assert.match(mismatch.body.toString(), /CONFLICT\.inbox\.payload_mismatch/);
  assert.equal((await receive(delivery(id, 2, "shop"))).acceptance, "first");
  assert.equal(await db.count(`ledger WHERE message_id = '${id}'`), 2);
});

test("a handler that throws accepts nothing", async () => {
  const id = randomUUID();
  assert.equal((await receive(delivery(id, -1))).status, 500);
  assert.equal(await db.count(`ledger WHERE message_id = '${id}'`), 0);
  assert.equal((await receive(delivery(id, 1))).acceptance, "first");
});

test("a message that is not signed by its source is refused", async () => {
  const sent = delivery(randomUUID(), 3);
  const forged = await receive({ ...sent, body: Buffer.from('{"amount":4}') });
  assert.equal(forged.status, 401);
  assert.match(forged.body.toString(), /AUTH\.signature/);
  assert.equal((await receive({ ...sent, source: "other" })).status, 404);
  assert.equal(
    (await receive(delivery(randomUUID(), 3, "bank", Date.now() - 360_000))).status,
    401,
  );
  const twice = {
    ...sent,
    headers: { ...(sent.headers as Record<string, string>), "webhook-id": ["a", "b"] },
  };
  assert.equal((await receive(twice)).status, 401);
  assert.throws(
    () => new Inbox(pool, { consumer: "c", sources: { bank: ["secret"] } }),
    /key does not begin with whsec_/,
  );
});

test("a store that cannot be used is 503, so that the sender tries again", async () => {
  const absent = new pg.Pool({ connectionString: `${db.url}_absent` });
  const cut = new Inbox(absent, {
    consumer: "ledger",
    sources: { bank: [SECRET] },
    onError: () => undefined,
  });
  const reply = await cut.receive(delivery(randomUUID(), 1), async () => undefined);
  assert.equal(reply.status, 503);
  assert.equal(reply.headers["retry-after"], "1");
  await absent.end();
});
