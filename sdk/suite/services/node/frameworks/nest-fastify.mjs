import { FastifyAdapter } from "@nestjs/platform-fastify";
import { start as startNest } from "./nest.mjs";

export function start(shop, port) {
  return startNest(shop, port, new FastifyAdapter());
}
