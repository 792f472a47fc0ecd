/** A service in a separate process, which tests kill. It prints its URL. */
import pg from "pg";
import express from "express";
import type { AddressInfo } from "node:net";
import { hapax, problems } from "hapax/express";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1 });
pool.on("error", () => undefined);
const app = express();
app.post(
  "/shops/one/orders",
  hapax(pool, { tenant: "demo", operation: "POST /shops/{shop}/orders" }),
  async (req, res) => {
    const { id } = req.body as { id: string };
    await req.tx.query(
      "INSERT INTO orders (id, tenant, item, amount) VALUES ($1, 'demo', 'tea', 5)",
      [id],
    );
    await req.tx.emit("order.created", { id }, { aggregate: { type: "order", id } });
    res.status(201).json({ id });
  },
);
app.use(problems());
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
