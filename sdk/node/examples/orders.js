// A shop with express and pg: POST /orders runs once per Idempotency-Key.
//
// DATABASE_URL names a database with the schema `hapax`.
import express from "express";
import pg from "pg";
import { Problem } from "hapax";
import { hapax, problems } from "hapax/express";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 });
// Without these listeners, a connection that is closed by the database would end the process.
pool.on("error", (error) => console.warn("connection lost:", error.message));
pool.on("connect", (client) => client.on("error", () => {}));
await pool.query(
  "CREATE TABLE IF NOT EXISTS example_order (id bigserial PRIMARY KEY, item text NOT NULL, amount integer NOT NULL)",
);

const app = express();
// A real service takes the tenant from its authentication: the principal's stable id.
const once = hapax(pool, { tenant: (req) => req.get("x-user") ?? "guest" });

app.post("/orders", once, async (req, res) => {
  const { item, amount } = req.body;
  if (!Number.isSafeInteger(amount) || amount <= 0) {
    // Not stored: the corrected request may use the key.
    throw new Problem("VALIDATION.member", "must be a positive integer", { member: "amount" });
  }
  const { rows } = await req.tx.query(
    "INSERT INTO example_order (item, amount) VALUES ($1, $2) RETURNING id, item, amount",
    [item, amount],
  );
  if (item === "sold out") {
    // A refusal: the response is stored, and the row above is rolled back.
    throw new Problem("CONFLICT.stock.out", "there is not enough in stock", { status: 409 });
  }
  const [order] = rows;
  await req.tx.emit("order.created", order, { aggregate: { type: "order", id: order.id } });
  res.status(201).location(`/orders/${order.id}`).json(order);
});
app.use(problems());

const server = app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}`);
});
process.on("SIGTERM", () => server.close(() => pool.end()));
