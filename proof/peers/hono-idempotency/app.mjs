// Orders with hono-idempotency and its store in memory, as in the quick start of its documentation.
import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { idempotency } from "hono-idempotency";
import { memoryStore } from "hono-idempotency/stores/memory";

const orders = [];
const work = () => new Promise((resolve) => setTimeout(resolve, 200));

const app = new Hono();
app.use("/orders/*", idempotency({ store: memoryStore() }));

app.post("/orders", async (c) => {
  const { amount } = await c.req.json();
  await work();
  const order = { id: orders.length + 1, amount };
  orders.push(order);
  return c.json(order, 201);
});

app.get("/orders", (c) => c.json(orders));

serve({ fetch: app.fetch, hostname: "127.0.0.1", port: Number(process.env.PORT) });
