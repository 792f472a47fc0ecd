// Payments with express and pg: each is charged once at a provider, even if the process dies.
//
// DATABASE_URL names a database with the schema `hapax`, PROVIDER_URL the provider of payments.
import express from "express";
import pg from "pg";
import { Problem } from "hapax";
import { phased, problems } from "hapax/express";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
pool.on("error", (error) => console.warn("connection lost:", error.message));
pool.on("connect", (client) => client.on("error", () => {}));
await pool.query(
  "CREATE TABLE IF NOT EXISTS example_charge (id text PRIMARY KEY, amount integer NOT NULL)",
);

// The provider returns the first charge again for a key that it knows.
async function charge(amount, key, signal) {
  const answer = await fetch(process.env.PROVIDER_URL, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": key },
    body: JSON.stringify({ amount }),
    signal,
  });
  if (answer.status === 402) {
    // A refusal: the response is stored.
    throw new Problem("PROVIDER.card.declined", "the card was declined", { status: 402 });
  }
  // The outcome is unknown: the key stays in progress, and a retry calls under the same key.
  if (!answer.ok) throw new Error(`the provider responded with ${answer.status}`);
  return answer.json();
}

const app = express();
const once = phased(pool, { tenant: (req) => req.get("x-user") ?? "guest" });

app.post("/payments", once, async (req, res) => {
  const { phases } = req;
  const { amount } = req.body;
  if (!Number.isSafeInteger(amount) || amount <= 0) {
    // The key was not used yet, so the corrected request may use it.
    throw new Problem("VALIDATION.member", "must be a positive integer", { member: "amount" });
  }
  const { id } = await phases.call("charge", (key, signal) => charge(amount, key, signal));
  await phases.transaction("charged", async (tx) => {
    await tx.query("INSERT INTO example_charge (id, amount) VALUES ($1, $2)", [id, amount]);
    await tx.emit("payment.succeeded", { id, amount }, { aggregate: { type: "charge", id } });
  });
  res.status(201).json({ id, amount });
});
app.use(problems());

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
process.on("SIGTERM", () => server.close(() => pool.end()));
