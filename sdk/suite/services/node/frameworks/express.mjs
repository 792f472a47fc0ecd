import express from "express";
import { hapax, problems } from "hapax/express";
import { tenantOf } from "../shop.mjs";

const tenant = (request) => tenantOf(request.get("authorization"));

export function start(shop, port) {
  const app = express();
  const protect = hapax(shop.database, { tenant, retentionMs: shop.retentionMs });
  app.post("/orders", protect, async (request, response) => {
    const order = await shop.createOrder(request.tx, tenant(request), request.body);
    response.status(201).location(`/orders/${order.id}`).json(order);
  });
  app.get("/orders", async (request, response) => {
    response.json(await shop.orders(tenant(request)));
  });
  app.post("/webhooks", express.raw({ type: () => true }), async (request, response) => {
    const reply = await shop.receive(request.headers, request.body);
    response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  app.use(problems());
  app.listen(port, "127.0.0.1");
}
