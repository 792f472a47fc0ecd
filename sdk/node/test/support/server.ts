/** A service in a separate process, which tests kill. It prints its URL. */
import pg from "pg";
import express from "express";
import type { AddressInfo } from "node:net";
import { hapax, problems } from "hapax/express";
import { kysely } from "hapax/kysely";
import { CompiledQuery, Kysely, PostgresDialect, type Transaction } from "kysely";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1 });
pool.on("error", () => undefined);
const isKysely = process.env.DRIVER === "kysely";
const db = new Kysely<object>({ dialect: new PostgresDialect({ pool }) });
const app = express();
app.post(
  "/shops/one/orders",
  hapax<object>(isKysely ? kysely(db) : pool, {
    tenant: "demo",
    operation: "POST /shops/{shop}/orders",
  }),
  async (req, res) => {
    const { id } = req.body as { id: string };
    const text = "INSERT INTO orders (id, tenant, item, amount) VALUES ($1, 'demo', 'tea', 5)";
    if (isKysely) {
      const tx = req.tx as unknown as Transaction<object>;
      await tx.executeQuery(CompiledQuery.raw(text, [id]));
    } else {
      await req.tx.query(text, [id]);
    }
    await req.tx.emit("order.created", { id }, { aggregate: { type: "order", id } });
    res.status(201).json({ id });
  },
);
app.use(problems());
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
