import { serve } from "@hono/node-server";
import { hapax, problems } from "hapax/hono";
import { Hono } from "hono";
import { tenantOf } from "../shop.mjs";

const tenant = (c) => tenantOf(c.req.header("authorization"));

export function start(shop, port) {
  const app = new Hono();
  app.onError(problems);
  const protect = hapax(shop.database, { tenant, retentionMs: shop.retentionMs });
  app.post("/orders", protect, async (c) => {
    const order = await shop.createOrder(c.get("tx"), tenant(c), await c.req.json().catch(() => undefined));
    return c.json(order, 201, { location: `/orders/${order.id}` });
  });
  app.get("/orders", async (c) => c.json(await shop.orders(tenant(c))));
  app.post("/webhooks", async (c) => {
    const received = new Uint8Array(await c.req.arrayBuffer());
    const { status, headers, body } = await shop.receive(c.req.raw.headers, received);
    return new Response(body, { status, headers });
  });
  serve({ fetch: app.fetch, port, hostname: "127.0.0.1" });
}
