// A shop in Node: every retry is safe, because the effect and its record are one commit.
//
//   POST /orders           once per Idempotency-Key: the order, its event and the answer
//   POST /webhooks/:source once per source and webhook-id: the mark that it was taken, and the
//                          ledger entry
//
// DATABASE_URL names a database with the schema `hapax` and the tables of ../migrations.
import { createHash, randomUUID } from "node:crypto";
import express from "express";
import pg from "pg";
import { BODY_BYTES_MAX, Problem, guarded, once, transaction } from "./idempotency.js";

// Statements go without names, so that a transaction-mode pooler may stand before the database.
const pool = new pg.Pool({
  connectionString: process.env.DATABASE_URL,
  max: 10,
  connectionTimeoutMillis: 5_000,
});
// Without these a connection that the database closes would take the process with it.
pool.on("error", (error) => console.warn("connection lost:", error.message));
pool.on("connect", (client) => client.on("error", () => {}));

const app = express();
app.disable("x-powered-by");
app.disable("etag");
// The bytes as they came: they are hashed, and a signature over them would have to hold.
app.use(express.raw({ type: () => true, limit: BODY_BYTES_MAX }));

// A real service takes the tenant from its authentication: the principal's stable id.
app.post("/orders", once(pool, "demo", "POST /orders", createOrder));

// Runs in the transaction that holds the key; it neither commits nor calls other systems.
async function createOrder(tx, tenant, body) {
  const { item, amount } = objectIn(body);
  if (typeof item !== "string" || !/^[\p{L}\p{N}\p{P} ]{1,100}$/u.test(item)) {
    throw new Problem("VALIDATION.member", "an order has an item");
  }
  if (!Number.isSafeInteger(amount) || amount <= 0) {
    throw new Problem("VALIDATION.member", "an order has a positive amount");
  }
  const id = `ord_${randomUUID()}`;
  await tx.query("INSERT INTO shop_order (id, tenant, item, amount) VALUES ($1, $2, $3, $4)", [
    id, tenant, item, amount,
  ]);
  if (item === "sold out") {
    // A refusal: it is remembered, and what was written before it is not.
    throw new Problem("CONFLICT.state", "there is none left", 409);
  }
  const created = JSON.stringify({ id, item, amount });
  await tx.query("SELECT hapax.emit('order.created', $1, 'order', $2)", [created, id]);
  return {
    status: 201,
    headers: [["content-type", "application/json"], ["location", `/orders/${id}`]],
    body: Buffer.from(created),
  };
}

// Who may send webhooks. Ids are unique at their sender only: the source is part of what a message is
// known by, so every sender has one name here, which never changes.
const SOURCES = new Set(["bank", "marketplace"]);

app.post("/webhooks/:source", guarded(async (request, response) => {
  const { source } = request.params;
  if (!SOURCES.has(source)) throw new Problem("NOT_FOUND", "this source is not known", 404);
  // A real service verifies the signature first, with the key of this source.
  const messageId = request.get("webhook-id") ?? "";
  const body = request.body ?? Buffer.alloc(0);
  const { amount } = objectIn(body);
  const bytes = Buffer.byteLength(messageId);
  if (bytes < 1 || bytes > 255 || !Number.isSafeInteger(amount)) {
    throw new Problem("VALIDATION.request", "a payment has a webhook-id and an amount");
  }
  const acceptance = await transaction(pool, async (tx) => {
    const hash = createHash("sha256").update(body).digest();
    const { rows: [taken] } = await tx.query(
      "SELECT hapax.accept('ledger', $1, $2, $3) AS acceptance", [messageId, hash, source]);
    if (taken.acceptance === "first") {
      await tx.query("INSERT INTO ledger_entry (message_id, amount) VALUES ($1, $2)", [
        messageId, amount,
      ]);
    }
    return taken.acceptance;
  });
  // The acknowledgement leaves after the commit: a crash between the two brings the message
  // again, and then it is a duplicate.
  if (acceptance === "mismatch") {
    throw new Problem("CONFLICT.inbox.payload_mismatch", "the id came before with other words");
  }
  response.status(200).end();
}));

// What express itself refuses: a body that is too large or breaks off.
app.use((error, _request, response, next) => {
  if (response.headersSent) return next(error);
  const code = error.status === 413 ? "VALIDATION.body.too_large" : "VALIDATION.request";
  new Problem(code, "the body cannot be read").send(response);
});

function objectIn(body) {
  let value;
  try {
    value = JSON.parse(body.toString("utf8"));
  } catch {
    throw new Problem("VALIDATION.json", "the body is not JSON");
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Problem("VALIDATION.json", "the body is not an object");
  }
  return value;
}

const server = app.listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
process.on("SIGTERM", () => server.close(() => pool.end()));
