// What the shop does, whichever framework and driver it runs on.
//
//   POST /orders    once per Idempotency-Key: the order, its event and the response
//   GET /orders     the ids of the tenant's orders
//   POST /webhooks  once per webhook-id: the inbox row and the ledger entry
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { Problem } from "hapax";
import { Inbox } from "hapax/inbox";
import pg from "pg";

/** Connections of a driver. */
export const CONNECTIONS = 8;

/** The secret with which the relay of the tests signs. */
const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/** Opens a pool of pg. */
export function openPool(url, max = CONNECTIONS) {
  const pool = new pg.Pool({ connectionString: url, max, connectionTimeoutMillis: 5_000 });
  // Without these handlers, a connection that the database closes would end the process.
  pool.on("error", () => undefined);
  pool.on("connect", (client) => client.on("error", () => undefined));
  return pool;
}

export class Shop {
  /** `driver` opens the transactions of orders. */
  constructor(url, driver) {
    this.database = driver.database;
    this.insert = driver.insert;
    this.pool = openPool(url, 4);
    this.inbox = new Inbox(this.pool, { consumer: "ledger", sources: { bank: [SECRET] } });
    this.retentionMs = Number(process.env.HAPAX_RETENTION_S ?? 86_400) * 1_000;
  }

  /** Runs in the transaction that has claimed the key. */
  async createOrder(tx, tenant, body) {
    const { item, amount, slow_ms: slowMs = 0 } = body ?? {};
    if (typeof item !== "string" || !/^[\p{L}\p{N}\p{P} ]{1,100}$/u.test(item)) {
      throw new Problem("VALIDATION.member", "must be a name of 1 to 100 characters", { member: "item" });
    }
    if (!Number.isSafeInteger(amount) || amount <= 0) {
      throw new Problem("VALIDATION.member", "must be a positive integer", { member: "amount" });
    }
    if (item === "throw before") throw new Error("thrown before the first statement");
    const order = { id: `ord_${randomUUID()}`, item, amount };
    await this.insert(tx, { ...order, tenant });
    if (item === "throw after") throw new Error("thrown after the first statement");
    if (item === "sold out") throw new Problem("CONFLICT.state", "the item is sold out", { status: 409 });
    if (slowMs > 0) await pause(slowMs);
    await tx.emit("order.created", order, { aggregate: { type: "order", id: order.id } });
    return order;
  }

  /** The tenant's orders. */
  async orders(tenant) {
    const { rows } = await this.pool.query("SELECT id FROM shop_order WHERE tenant = $1", [tenant]);
    return { items: rows };
  }

  /** Accepts a webhook. `body` has the bytes that were sent. */
  receive(headers, body) {
    return this.inbox.receive({ source: "bank", headers, body }, async (tx, message) => {
      const { amount } = message.json().data;
      await tx.query("INSERT INTO ledger_entry (message_id, amount) VALUES ($1, $2)", [message.id, amount]);
      return "entered";
    });
  }
}

/** The tenant of a request. A real service verifies the credential first. */
export function tenantOf(authorization) {
  return /^Bearer (\S+)$/.exec(authorization ?? "")?.[1] ?? "anonymous";
}
