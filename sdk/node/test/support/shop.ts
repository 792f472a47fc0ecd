/** The handler of the shop, once for all frameworks and drivers. Its body says what it does. */
import { Readable } from "node:stream";
import { Problem, type Emitter } from "hapax";

export interface NewOrder {
  id: string;
  item?: string;
  amount?: number;
  act?:
    | "refuse"
    | "invalid"
    | "throw-before"
    | "throw-after"
    | "violate"
    | "swallow"
    | "wait"
    | "binary"
    | "stream"
    | "events"
    | "big"
    | "empty"
    | "keep-tx";
}

export interface Reply {
  status: number;
  headers: [string, string][];
  body: Buffer | Readable | undefined;
  /** The response is an event stream. */
  events?: boolean;
}

/** How a driver writes the row of an order. */
export type Insert<Client> = (
  tx: Client & Emitter,
  id: string,
  item: string,
  amount: number,
) => Promise<unknown>;

export const BYTES = Buffer.from(Array.from({ length: 70_000 }, (_, at) => (at * 7) % 256));

/** Handlers that wait, by the id of their order. */
const gates = new Map<string, { reached: () => void; opened: Promise<void> }>();
export let keptTx: unknown;

/** Makes the handler of an order wait. `reached` resolves when it does. */
export function gate(id: string): { reached: Promise<void>; open: () => void } {
  let open!: () => void;
  let reach!: () => void;
  const reached = new Promise<void>((resolve) => (reach = resolve));
  const opened = new Promise<void>((resolve) => (open = resolve));
  gates.set(id, { reached: reach, opened });
  return { reached, open };
}

/** Creates an order. */
export async function createOrder<Client>(
  tx: Client & Emitter,
  insert: Insert<Client>,
  order: NewOrder,
): Promise<Reply> {
  const { id, item = "tea", amount = 5, act } = order;
  if (act === "throw-before") throw new Error("thrown before the first statement");
  await insert(tx, id, item, amount);
  await tx.emit("order.created", { id, item, amount }, { aggregate: { type: "order", id } });
  if (act === "throw-after") throw new Error("thrown after the first statement");
  if (act === "violate") await insert(tx, `${id}-2`, item, -1);
  if (act === "swallow") {
    const caught = await insert(tx, `${id}-2`, item, -1).catch((error: unknown) => error);
    if (!caught) throw new Error("the constraint was not checked");
    throw new Problem("CONFLICT.state", "the amount is refused");
  }
  if (act === "refuse") {
    throw new Problem("CONFLICT.state", "the item is sold out", {
      retryAfter: 3,
      headers: [["x-item", item]],
    });
  }
  if (act === "invalid")
    throw new Problem("VALIDATION.member", "not this amount", { member: "amount" });
  if (act === "wait") {
    const held = gates.get(id);
    if (!held) throw new Error("no gate");
    held.reached();
    await held.opened;
  }
  if (act === "keep-tx") keptTx = tx;
  return replyOf(order, id);
}

function replyOf({ item = "tea", amount = 5, act }: NewOrder, id: string): Reply {
  const octets: [string, string][] = [["content-type", "application/octet-stream"]];
  if (act === "binary") return { status: 200, headers: octets, body: BYTES };
  if (act === "big") return { status: 200, headers: octets, body: Buffer.alloc(5 * 1024 * 1024) };
  if (act === "empty") return { status: 204, headers: [["x-empty", "yes"]], body: undefined };
  if (act === "stream") {
    const parts = [BYTES.subarray(0, 1000), BYTES.subarray(1000, 60_000), BYTES.subarray(60_000)];
    return { status: 200, headers: octets, body: Readable.from(parts) };
  }
  const type = act === "events" ? "text/event-stream" : "application/json";
  const body = Buffer.from(
    JSON.stringify({ id, item, amount, at: process.hrtime.bigint().toString() }),
  );
  return {
    status: 201,
    headers: [
      ["content-type", type],
      ["location", `/orders/${id}`],
      ["set-cookie", "a=1"],
      ["set-cookie", "b=2"],
      ["x-caf\u00e9".slice(0, 5), "caf\u00e9"],
    ],
    body,
    events: act === "events",
  };
}
