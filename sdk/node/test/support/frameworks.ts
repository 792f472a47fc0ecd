/** The shop in each framework. */
import "reflect-metadata";
import type { AddressInfo } from "node:net";
import type { Server } from "node:http";
import { Readable } from "node:stream";
import type { Database, Emitter } from "hapax";
import { hapax as onExpress, problems as expressProblems } from "hapax/express";
import { hapax as onFastify, problems as fastifyProblems } from "hapax/fastify";
import { hapax as onHono, problems as honoProblems } from "hapax/hono";
import { hapax as onNest, HapaxTx, Problems } from "hapax/nest";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { serve } from "@hono/node-server";
import {
  Body,
  Controller,
  Get,
  Module,
  Post,
  Res,
  StreamableFile,
  UseInterceptors,
} from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import type { PgPool } from "hapax/pg";
import { createOrder, type Insert, type NewOrder, type Reply } from "./shop.js";

export interface Shop {
  url: string;
  stop(): Promise<void>;
}

export interface Settings {
  waitMs?: number;
  handlerMs?: number;
  key?: "required" | "optional";
  onFailure?: "store" | "release";
  profile?: "hapax" | "stripe" | "acp";
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- each driver has its own transaction
type Any = any;
export type Start = (
  database: PgPool | Database<Any>,
  insert: Insert<Any>,
  settings?: Settings,
) => Promise<Shop>;

const TENANT = { tenant: "demo", onError: () => undefined };

/** Writes a reply to a response of Node. */
function write(reply: Reply, response: Any): void {
  for (const [name, value] of reply.headers) response.appendHeader(name, value);
  response.statusCode = reply.status;
  if (reply.events) {
    response.flushHeaders();
    response.write("data: 1\n\n");
  }
  if (reply.body instanceof Readable) reply.body.pipe(response);
  else response.end(reply.body);
}

export const startExpress: Start = async (database, insert, settings = {}) => {
  const app = express();
  const router = express.Router();
  router.post(
    "/:shop/orders",
    onExpress<Any>(database, { ...TENANT, ...settings }),
    async (req, res) => {
      write(await createOrder(req.tx as Any, insert, req.body as NewOrder), res);
    },
  );
  router.get("/:shop/orders", onExpress<Any>(database, TENANT), (_req, res) => void res.json([]));
  app.use("/shops", router);
  app.use(expressProblems());
  return listening(app.listen(0, "127.0.0.1"));
};

export const startFastify: Start = async (database, insert, settings = {}) => {
  const app = fastify();
  app.setErrorHandler(fastifyProblems);
  const route = onFastify<Any>(database, { ...TENANT, ...settings });
  app.post("/shops/:shop/orders", route, async (request, reply) => {
    const made = await createOrder(request.tx as Any, insert, request.body as NewOrder);
    for (const [name, value] of made.headers) reply.header(name, value);
    if (made.events) reply.raw.flushHeaders();
    return reply.code(made.status).send(made.body);
  });
  app.get("/shops/:shop/orders", route, async () => []);
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  return { url, stop: () => closeNow(app.server, () => app.close()) };
};

export const startHono: Start = async (database, insert, settings = {}) => {
  const app = new Hono();
  app.onError(honoProblems);
  const protect = onHono<Any>(database, { ...TENANT, ...settings });
  app.post("/shops/:shop/orders", protect, async (c) => {
    const made = await createOrder<Any>(c.get("tx"), insert, await c.req.json<NewOrder>());
    const headers = new Headers(made.headers);
    const body = made.body instanceof Readable ? (Readable.toWeb(made.body) as Any) : made.body;
    return new Response(body, { status: made.status, headers });
  });
  app.get("/shops/:shop/orders", protect, (c) => c.json([]));
  const server = await new Promise<Server>((resolve) => {
    const started = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, () =>
      resolve(started as Server),
    );
  });
  return listening(server);
};

const nest =
  (isFastify: boolean): Start =>
  async (database, insert, settings = {}) => {
    const protect = onNest<Any>(database, { ...TENANT, ...settings });

    @Controller("shops")
    class Orders {
      @Post(":shop/orders")
      @UseInterceptors(protect)
      async create(
        @Body() body: NewOrder,
        @HapaxTx() tx: Emitter,
        @Res({ passthrough: true }) res: Any,
      ) {
        const made = await createOrder(tx as Any, insert, body);
        const raw = isFastify ? res.raw : res;
        if (made.body instanceof Readable) {
          res.status(made.status);
          return new StreamableFile(made.body);
        }
        if (made.events || !made.body?.length || made.status === 200) {
          write(made, raw);
          if (isFastify) res.hijack();
          return undefined;
        }
        for (const [name, value] of made.headers) {
          if (name !== "content-type") raw.appendHeader(name, value);
        }
        return JSON.parse(made.body.toString());
      }

      @Get(":shop/orders")
      @UseInterceptors(protect)
      list() {
        return [];
      }
    }

    @Module({ controllers: [Orders] })
    class App {}

    const options = { rawBody: true, logger: false } as const;
    const app = isFastify
      ? await NestFactory.create(App, new FastifyAdapter(), options)
      : await NestFactory.create(App, options);
    app.useGlobalFilters(new Problems());
    await app.listen(0, "127.0.0.1");
    const server = app.getHttpServer() as Server;
    return { ...(await listening(server)), stop: () => closeNow(server, () => app.close()) };
  };

export const startNest = nest(false);
export const startNestFastify = nest(true);

async function listening(server: Server): Promise<Shop> {
  if (!server.listening) await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () => closeNow(server, async () => void server.close()),
  };
}

async function closeNow(server: Server, close: () => Promise<unknown>): Promise<void> {
  const closed = new Promise((resolve) => server.once("close", resolve));
  server.closeAllConnections();
  await close();
  server.closeAllConnections();
  await closed;
}
