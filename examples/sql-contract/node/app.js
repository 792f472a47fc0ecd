// A shop in Node. Every retry is safe, because the effect and the key's row are one commit.
//
//   POST /orders           once per Idempotency-Key: the order, its event and the response
//   POST /webhooks/:source once per source and webhook-id: the inbox row and the ledger entry
//
// DATABASE_URL names a database with the schema `hapax` and the tables of ../migrations.
import { createHash, randomUUID } from "node:crypto";
import express from "express";
import pg from "pg";
import { BODY_BYTES_MAX, Problem, guarded, once, transaction } from "./idempotency.js";

// Statements have no names, so that the service also works through a pooler in transaction mode.
const pool = new pg.Pool({
  connectionString: process.env.DATABASE_URL,
  max: 10,
  connectionTimeoutMillis: 5_000,
});
// Without these handlers, a connection closed by the database would crash the process.
pool.on("error", (error) => console.warn("connection lost:", error.message));
pool.on("connect", (client) => client.on("error", () => {}));

const app = express();
app.disable("x-powered-by");
app.disable("etag");
// Read the body as raw bytes: they are hashed, and a webhook signature covers them.
app.use(express.raw({ type: () => true, limit: BODY_BYTES_MAX }));

// A real service takes the tenant from its authentication: the principal's stable id.
app.post("/orders", once(pool, "demo", "POST /orders", createOrder));

// Runs in the transaction that claimed the key; it does not commit or call other systems.
async function createOrder(tx, tenant, body) {
  const { item, amount } = objectIn(body);
  if (typeof item !== "string" || !/^[\p{L}\p{N}\p{P} ]{1,100}$/u.test(item)) {
    throw new Problem("VALIDATION.member", "item must be a name of 1 to 100 characters");
  }
  if (!Number.isSafeInteger(amount) || amount <= 0) {
    throw new Problem("VALIDATION.member", "amount must be a positive integer");
  }
  const id = `ord_${randomUUID()}`;
  await tx.query("INSERT INTO shop_order (id, tenant, item, amount) VALUES ($1, $2, $3, $4)", [
    id, tenant, item, amount,
  ]);
  if (item === "sold out") {
    // A refusal: the response is stored, and the INSERT above is rolled back.
    throw new Problem("CONFLICT.state", "the item is sold out", 409);
  }
  const created = JSON.stringify({ id, item, amount });
  await tx.query("SELECT hapax.emit('order.created', $1, 'order', $2)", [created, id]);
  return {
    status: 201,
    headers: [["content-type", "application/json"], ["location", `/orders/${id}`]],
    body: Buffer.from(created),
  };
}

// The sources that may send webhooks. Message ids are unique only within their source, so the
// source is part of a message's identity. Give each sender one name, and never change it.
const SOURCES = new Set(["bank", "marketplace"]);

app.post("/webhooks/:source", guarded(async (request, response) => {
  const { source } = request.params;
  if (!SOURCES.has(source)) throw new Problem("NOT_FOUND", "this source is unknown", 404);
  // A real service verifies the signature first, with the key of this source.
  const messageId = request.get("webhook-id") ?? "";
  const body = request.body ?? Buffer.alloc(0);
  const { amount } = objectIn(body);
  const bytes = Buffer.byteLength(messageId);
  if (bytes < 1 || bytes > 255 || !Number.isSafeInteger(amount)) {
    throw new Problem("VALIDATION.request", "a payment must have a webhook-id and an amount");
  }
  const acceptance = await transaction(pool, async (tx) => {
    const hash = createHash("sha256").update(body).digest();
    const { rows: [taken] } = await tx.query(
      "SELECT hapax.accept('ledger', $1, $2, $3) AS acceptance", [messageId, hash, source]);
    if (taken.acceptance === "first") {
      await tx.query("INSERT INTO ledger_entry (message_id, amount) VALUES ($1, $2)", [
        messageId, amount,
      ]);
      await tx.query("SELECT hapax.processed('ledger', $1, $2, 'entered')", [messageId, source]);
    }
    return taken.acceptance;
  });
  // Acknowledge after the commit. If the process crashes between the two, the message is delivered
  // again and is a duplicate.
  if (acceptance === "mismatch") {
    throw new Problem("CONFLICT.inbox.payload_mismatch", "the id was used for another payload");
  }
  response.status(200).end();
}));

// Errors of express itself: a body that is too large or incomplete.
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
