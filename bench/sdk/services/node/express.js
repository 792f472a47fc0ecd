// Orders with express. VARIANT chooses how a retry is recognized.
import express from "express";
import { emit, insert, pool, port, variant } from "./shop.js";

const app = express();

async function bare(req, res) {
  res.status(201).json(await insert(pool, req.body));
}

async function protectedByHapax() {
  const { hapax, problems } = await import("hapax/express");
  app.post("/orders", hapax(pool, { tenant: "bench" }), async (req, res) => {
    const order = await insert(req.tx, req.body);
    await emit(req.tx, order);
    res.status(201).json(order);
  });
  app.use(problems());
}

async function protectedByExpressIdempotency(options) {
  const { getSharedIdempotencyService, idempotency } = (await import("express-idempotency"))
    .default;
  app.post("/orders", express.json(), idempotency(options), async (req, res) => {
    if (getSharedIdempotencyService().isHit(req)) return;
    res.status(201).send(await insert(pool, req.body));
  });
}

async function redis() {
  const { default: adapters } = await import("express-idempotency-redis-adapter");
  const dataAdapter = new adapters.default({ connectionConfig: { url: process.env.REDIS_URL } });
  await dataAdapter.connect();
  return { dataAdapter };
}

switch (variant) {
  case "bare":
    app.post("/orders", express.json(), bare);
    break;
  case "express-idempotency-memory":
    await protectedByExpressIdempotency({});
    break;
  case "express-idempotency-redis":
    await protectedByExpressIdempotency(await redis());
    break;
  default:
    await protectedByHapax();
}
app.listen(port, "127.0.0.1");
