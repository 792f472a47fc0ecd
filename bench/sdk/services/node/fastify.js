// Orders with Fastify. VARIANT chooses how a retry is recognized.
import fastify from "fastify";
import { emit, insert, pool, port, variant } from "./shop.js";

const app = fastify();

async function bare(request, reply) {
  return reply.code(201).send(await insert(pool, request.body));
}

async function protectedByHapax() {
  const { hapax, problems } = await import("hapax/fastify");
  app.setErrorHandler(problems);
  app.post("/orders", hapax(pool, { tenant: "bench" }), async (request, reply) => {
    const order = await insert(request.tx, request.body);
    await emit(request.tx, order);
    return reply.code(201).send(order);
  });
}

async function protectedByNodeIdempotency() {
  const { createIdempotency } = await import("./core.js");
  const idempotency = await createIdempotency();
  const sentBy = ({ method, url, headers, body }) => ({ method, path: url, headers, body });
  const hooks = {
    preHandler: async (request, reply) => {
      const stored = await idempotency.onRequest(sentBy(request));
      if (stored === undefined) return;
      request.isReplay = true;
      reply.code(stored.additional.status).send(stored.body);
      return reply;
    },
    preSerialization: async (request, reply, body) => {
      if (!request.isReplay) {
        const additional = { status: reply.statusCode };
        await idempotency.onResponse(sentBy(request), { body, additional });
      }
      return body;
    },
  };
  app.post("/orders", hooks, bare);
}

if (variant === "bare") app.post("/orders", bare);
else if (variant.startsWith("node-idempotency")) await protectedByNodeIdempotency();
else await protectedByHapax();
await app.listen({ port, host: "127.0.0.1" });
