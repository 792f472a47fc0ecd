// Orders with Hono. VARIANT chooses how a retry is recognized.
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { emit, insert, pool, port, variant } from "./shop.js";

const app = new Hono();

async function bare(c) {
  return c.json(await insert(pool, await c.req.json()), 201);
}

async function protectedByHapax() {
  const { hapax, problems } = await import("hapax/hono");
  app.onError(problems);
  app.post("/orders", hapax(pool, { tenant: "bench" }), async (c) => {
    const tx = c.get("tx");
    const order = await insert(tx, await c.req.json());
    await emit(tx, order);
    return c.json(order, 201);
  });
}

async function protectedByNodeIdempotency() {
  const { createIdempotency } = await import("./core.js");
  const idempotency = await createIdempotency();
  app.use("/orders", async (c, next) => {
    const { method, path } = c.req;
    const sent = { method, path, headers: c.req.header(), body: await c.req.json() };
    const stored = await idempotency.onRequest(sent);
    if (stored !== undefined) return c.json(stored.body, stored.additional.status);
    await next();
    const body = await c.res.clone().json();
    await idempotency.onResponse(sent, { body, additional: { status: c.res.status } });
  });
  app.post("/orders", bare);
}

if (variant === "bare") app.post("/orders", bare);
else if (variant.startsWith("node-idempotency")) await protectedByNodeIdempotency();
else await protectedByHapax();
serve({ fetch: app.fetch, port, hostname: "127.0.0.1" });
