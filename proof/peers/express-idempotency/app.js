// Orders with express-idempotency and its default storage, which is in memory.
//
// The setup is that of its documentation: the middleware is in front of every POST, and the handler
// returns if the middleware has sent a response.
const express = require("express");
const idempotency = require("express-idempotency");

const orders = [];
const work = () => new Promise((resolve) => setTimeout(resolve, 200));

const app = express();
app.use(express.json());
app.post("*", idempotency.idempotency());

app.post("/orders", async (req, res) => {
  const idempotencyService = idempotency.getSharedIdempotencyService();
  if (idempotencyService.isHit(req)) {
    return;
  }
  await work();
  const order = { id: orders.length + 1, amount: req.body.amount };
  orders.push(order);
  res.status(201).send(order);
});

app.get("/orders", (_req, res) => {
  res.send(orders);
});

app.listen(process.env.PORT, "127.0.0.1");
