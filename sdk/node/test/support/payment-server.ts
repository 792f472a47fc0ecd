/** A service with payments in a separate process, which tests kill. It prints its URL. */
import pg from "pg";
import express from "express";
import type { AddressInfo } from "node:net";
import { phased, problems } from "hapax/express";
import { pay } from "./payments.js";

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 3 });
pool.on("error", () => undefined);
const app = express();
const options = { tenant: "demo", operation: "POST /shops/{shop}/orders", leaseMs: 500 };
app.post("/shops/one/orders", phased(pool, options), async (req, res) => {
  const { id } = req.body as { id: string };
  const { id: chargeId } = await pay(req.phases, id, process.env.PROVIDER_URL ?? "");
  res.status(201).json({ chargeId });
});
app.use(problems({ onError: () => undefined }));
const server = app.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
