import fastify from "fastify";
import { hapax, problems } from "hapax/fastify";
import { tenantOf } from "../shop.mjs";

const tenant = (request) => tenantOf(request.headers.authorization);

export async function start(shop, port) {
  const app = fastify();
  app.setErrorHandler(problems);
  const protect = hapax(shop.database, { tenant, retentionMs: shop.retentionMs });
  app.post("/orders", protect, async (request, reply) => {
    const order = await shop.createOrder(request.tx, tenant(request), request.body);
    return reply.code(201).header("location", `/orders/${order.id}`).send(order);
  });
  app.get("/orders", (request) => shop.orders(tenant(request)));
  app.register(async (webhooks) => {
    webhooks.removeAllContentTypeParsers();
    webhooks.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    webhooks.post("/webhooks", async (request, reply) => {
      const { status, headers, body } = await shop.receive(request.headers, request.body);
      return reply.code(status).headers(headers).send(body);
    });
  });
  await app.listen({ port, host: "127.0.0.1" });
}
