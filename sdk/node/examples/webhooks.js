// Webhooks with express and pg: a message of a source is processed once.
//
// DATABASE_URL names a database with the schema `hapax`, BANK_SECRET is a secret `whsec_...`.
import express from "express";
import pg from "pg";
import { Inbox } from "hapax/inbox";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
pool.on("error", (error) => console.warn("connection lost:", error.message));
await pool.query(
  "CREATE TABLE IF NOT EXISTS example_entry (message_id text NOT NULL, amount integer NOT NULL)",
);

const inbox = new Inbox(pool, {
  consumer: "ledger",
  // While a secret is rotated, list both.
  sources: { bank: [process.env.BANK_SECRET] },
});

const app = express();
// The signature covers the bytes of the body, so no parser may run before.
app.post("/webhooks/:source", express.raw({ type: () => true }), async (req, res) => {
  const { source } = req.params;
  const reply = await inbox.receive({ source, headers: req.headers, body: req.body }, enter);
  res.writeHead(reply.status, reply.headers).end(reply.body);
});

// Runs in the transaction that accepts the message. The result is recorded with it.
async function enter(tx, message) {
  const { type, data } = message.json();
  if (type !== "payment.received") return `ignored: type ${type}`;
  await tx.query("INSERT INTO example_entry (message_id, amount) VALUES ($1, $2)", [
    message.id,
    data.amount,
  ]);
  return "entered";
}

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
process.on("SIGTERM", () => server.close(() => pool.end()));
