// A shop in Node. Every retry is safe, because the effect and the key's row are one commit.
//
//   POST /orders           once per Idempotency-Key: the order, its event and the response
//   POST /webhooks/:source once per source and webhook-id: the inbox row and the ledger entry
//
// DATABASE_URL names a database with the schema `hapax` and the tables of ../migrations.
import { randomUUID } from "node:crypto";
import express from "express";
import { Problem } from "hapax";
import { hapax, problems } from "hapax/express";
import { Inbox } from "hapax/inbox";
import pg from "pg";

const { DATABASE_URL, BANK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", PORT = 8000 } = process.env;

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10, connectionTimeoutMillis: 5_000 });
// Without these handlers, a connection that the database closes would end the process.
pool.on("error", (error) => console.warn("connection lost:", error.message));
pool.on("connect", (client) => client.on("error", () => {}));

const app = express();
app.disable("x-powered-by");

// A real service takes the tenant from its authentication: the principal's stable id.
app.post("/orders", hapax(pool, { tenant: "demo" }), async (req, res) => {
  const { item, amount } = req.body ?? {};
  if (typeof item !== "string" || item.length < 1 || item.length > 100) {
    throw new Problem("VALIDATION.member", "must be a name of 1 to 100 characters", { member: "item" });
  }
  if (!Number.isSafeInteger(amount) || amount <= 0) {
    throw new Problem("VALIDATION.member", "must be a positive integer", { member: "amount" });
  }
  const order = { id: `ord_${randomUUID()}`, item, amount };
  await req.tx.query("INSERT INTO shop_order (id, tenant, item, amount) VALUES ($1, 'demo', $2, $3)", [
    order.id, item, amount,
  ]);
  // A refusal: the response is stored, and the INSERT above is rolled back.
  if (item === "sold out") throw new Problem("CONFLICT.state", "the item is sold out");
  await req.tx.emit("order.created", order, { aggregate: { type: "order", id: order.id } });
  res.status(201).location(`/orders/${order.id}`).json(order); // sent after the commit
});

const inbox = new Inbox(pool, { consumer: "ledger", sources: { bank: [BANK_SECRET] } });

app.post("/webhooks/:source", express.raw({ type: () => true }), async (req, res) => {
  const delivery = { source: req.params.source, headers: req.headers, body: req.body };
  const { status, headers, body } = await inbox.receive(delivery, async (tx, message) => {
    const amount = message.json()?.data?.amount;
    if (!Number.isSafeInteger(amount)) throw new Problem("VALIDATION.request", "a payment has an amount");
    await tx.query("INSERT INTO ledger_entry (message_id, amount) VALUES ($1, $2)", [message.id, amount]);
  });
  res.writeHead(status, headers).end(body); // after the commit
});

app.use(problems());

const server = app.listen(Number(PORT), "127.0.0.1");
process.on("SIGTERM", () => server.close(() => pool.end()));
