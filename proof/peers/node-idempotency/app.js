// Orders with @node-idempotency/core, through its adapter for NestJS and its storage in memory.
//
// The setup is that of the adapter's documentation: the module is registered, and the controller is
// decorated. Node has no decorators, so `__decorate` applies them, as in the output of TypeScript.
require("reflect-metadata");
const { __decorate, __param } = require("tslib");
const { Body, Controller, Get, HttpCode, Module, Post } = require("@nestjs/common");
const { NestFactory } = require("@nestjs/core");
const { Idempotent, NodeIdempotencyModule, StorageAdapterEnum } = require("@node-idempotency/nestjs");

const orders = [];
const work = () => new Promise((resolve) => setTimeout(resolve, 200));

let Orders = class {
  async create({ amount }) {
    await work();
    const order = { id: orders.length + 1, amount };
    orders.push(order);
    return order;
  }

  list() {
    return orders;
  }
};
__decorate([Post(), HttpCode(201), __param(0, Body())], Orders.prototype, "create", null);
__decorate([Get()], Orders.prototype, "list", null);
Orders = __decorate([Controller("orders"), Idempotent({})], Orders);

let App = class {};
const idempotency = NodeIdempotencyModule.forRootAsync({
  storage: { adapter: StorageAdapterEnum.memory },
});
App = __decorate([Module({ imports: [idempotency], controllers: [Orders] })], App);

async function main() {
  const app = await NestFactory.create(App, { logger: ["error", "warn"] });
  await app.listen(process.env.PORT, "127.0.0.1");
}

main();
