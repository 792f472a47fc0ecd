// Nest without a compiler: each decorator is called as a function.
import "reflect-metadata";
import { Body, Controller, Get, Headers, Module, Post, Req, Res, UseInterceptors } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { hapax, HapaxTx, Problems } from "hapax/nest";
import { tenantOf } from "../shop.mjs";

const tenant = (request) => tenantOf(request.headers.authorization);

export async function start(shop, port, adapter) {
  class Orders {
    async create(tx, body, authorization, response) {
      const order = await shop.createOrder(tx, tenantOf(authorization), body);
      response.header("location", `/orders/${order.id}`);
      return order;
    }

    list(authorization) {
      return shop.orders(tenantOf(authorization));
    }

    async receive(request, response) {
      const { status, headers, body } = await shop.receive(request.headers, request.rawBody);
      response.status(status);
      for (const [name, value] of Object.entries(headers)) response.header(name, value);
      response.send(body);
    }
  }
  const protect = hapax(shop.database, { tenant, retentionMs: shop.retentionMs });
  decorate(Orders, "create", [Post("orders"), UseInterceptors(protect)], [
    HapaxTx(), Body(), Headers("authorization"), Res({ passthrough: true }),
  ]);
  decorate(Orders, "list", [Get("orders")], [Headers("authorization")]);
  decorate(Orders, "receive", [Post("webhooks")], [Req(), Res()]);
  Controller()(Orders);

  class App {}
  Module({ controllers: [Orders] })(App);
  const options = { rawBody: true, logger: false };
  const app = adapter ? await NestFactory.create(App, adapter, options) : await NestFactory.create(App, options);
  app.useGlobalFilters(new Problems());
  await app.listen(port, "127.0.0.1");
}

function decorate(type, name, ofMethod, ofParameters) {
  ofParameters.forEach((decorator, index) => decorator(type.prototype, name, index));
  const descriptor = Object.getOwnPropertyDescriptor(type.prototype, name);
  for (const decorator of ofMethod) decorator(type.prototype, name, descriptor);
}
