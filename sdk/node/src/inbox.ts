/**
 * Webhooks that are processed once: the signature is verified as Standard Webhooks describes, and
 * the message is accepted in the transaction of its effect.
 *
 * ```ts
 * const inbox = new Inbox(pool, { consumer: "ledger", sources: { bank: ["whsec_..."] } });
 * app.post("/webhooks/:source", express.raw({ type: () => true }), async (req, res) => {
 *   const { source } = req.params;
 *   const reply = await inbox.receive({ source, headers: req.headers, body: req.body }, async (tx, message) => {
 *     await tx.query("INSERT INTO ledger ...", [...]);
 *   });
 *   res.writeHead(reply.status, reply.headers).end(reply.body);
 * });
 * ```
 */
import { randomUUID } from "node:crypto";
import {
  accept,
  acceptanceOf,
  acceptStatement,
  emitMany,
  processed,
  type Acceptance,
  type MessageId,
} from "./core/contract.js";
import { checkContract, type Database } from "./core/database.js";
import { problemOf, UsageError } from "./core/errors.js";
import { Events } from "./core/events.js";
import { logFailure } from "./core/options.js";
import { sha256 } from "./core/parts.js";
import { Problem } from "./core/problem.js";
import { TOLERANCE_MS, Verifier, verify, VerifyError } from "./core/signature.js";
import { lend, type Transactional } from "./core/tx.js";
import { databaseOf, type PgPool, type PgTransaction } from "./pg.js";

export {
  KeyTextError,
  Signer,
  sign,
  Verifier,
  verify,
  VerifyError,
  type Received,
} from "./core/signature.js";
export type { Acceptance, MessageId } from "./core/contract.js";

/** Options of an inbox. */
export interface InboxOptions {
  /** Who processes the messages. */
  consumer: string;
  /**
   * The keys of each source, `whsec_...` or `whpk_...`. While a key is rotated, list both. A source
   * is part of a message's identity: give each sender one name, and never change it.
   */
  sources: Record<string, readonly string[]>;
  /** Maximum difference between the time of an attempt and the current time, in milliseconds. */
  toleranceMs?: number;
  /** Maximum length of a message in bytes. */
  bodyBytesMax?: number;
  /** Receives the cause of each failure. */
  onError?: (problem: Problem) => void;
}

/** A request with a message. The body is as it arrived, before any parser. */
export interface Delivery {
  source: string;
  headers: Headers | Record<string, string | readonly string[] | undefined>;
  body: Uint8Array;
}

/** A verified message. */
export interface Message extends MessageId {
  body: Buffer;
  /** The body as JSON. */
  json<Value = unknown>(): Value;
}

/** The response to the sender. */
export interface Reply {
  status: number;
  headers: Record<string, string>;
  body: Buffer;
  /** What `hapax.accept` has returned, if the message was verified. */
  acceptance?: Acceptance;
}

/** Processes a message in the transaction that accepts it. The result is recorded with it. */
export type MessageHandler<Client> = (
  tx: Transactional<Client>,
  message: Message,
) => Promise<string | undefined> | Promise<void>;

/** Receives the messages of a consumer. */
export class Inbox<Client extends object = PgTransaction> {
  private readonly database: Database<Client>;
  private readonly keys: Map<string, Verifier[]>;

  constructor(
    database: PgPool | Database<Client>,
    private readonly options: InboxOptions,
  ) {
    this.database = databaseOf(database);
    const sources = Object.entries(options.sources);
    this.keys = new Map(
      sources.map(([source, texts]) => [source, texts.map((text) => Verifier.parse(text))]),
    );
  }

  /** Verifies and processes a message. It never rejects; the reply is sent after the commit. */
  async receive(delivery: Delivery, handler: MessageHandler<Client>): Promise<Reply> {
    try {
      const message = this.verified(delivery);
      const acceptance = await this.process(message, handler);
      if (acceptance === "mismatch") {
        const detail = "this source has sent this webhook-id before with a different payload";
        return {
          ...replyOf(new Problem("CONFLICT.inbox.payload_mismatch", detail)),
          acceptance,
        };
      }
      const headers: Record<string, string> =
        acceptance === "duplicate" ? { "idempotency-status": "replayed" } : {};
      return { status: 200, headers, body: Buffer.alloc(0), acceptance };
    } catch (error) {
      const problem = problemOf(error);
      (this.options.onError ?? logFailure)(problem);
      return replyOf(problem);
    }
  }

  /** Returns a message whose signature is valid. Throws a problem otherwise. */
  verified({ source, headers, body }: Delivery): Message {
    const keys = this.keys.get(source);
    if (!keys) throw new Problem("NOT_FOUND", "this source is not known");
    if (!((body as unknown) instanceof Uint8Array))
      throw new TypeError(
        "the signature covers the bytes of the body: pass them, not the parsed body",
      );
    if (body.length > (this.options.bodyBytesMax ?? 1024 * 1024)) {
      throw new Problem("VALIDATION.body.too_large", "the message is too long");
    }
    const id = only(headers, "webhook-id");
    const received = {
      id,
      timestamp: only(headers, "webhook-timestamp"),
      signature: only(headers, "webhook-signature"),
      body,
    };
    try {
      verify(received, keys, Date.now(), this.options.toleranceMs ?? TOLERANCE_MS);
    } catch (cause) {
      if (!(cause instanceof VerifyError)) throw cause;
      const detail = "the signature, its timestamp or its id is missing or not valid";
      throw new Problem("AUTH.signature", detail, { cause });
    }
    const bytes = Buffer.from(body);
    return {
      consumer: this.options.consumer,
      id,
      source,
      body: bytes,
      json: <Value>() => parsed(bytes) as Value,
    };
  }

  /** Accepts a verified message and runs the handler if it is new, in one transaction. */
  async process(message: Message, handler: MessageHandler<Client>): Promise<Acceptance> {
    const state = { isStarted: false };
    try {
      await checkContract(this.database as Database<never>);
      const hash = sha256(message.body);
      return await this.database.transaction(
        async (session) => {
          const acceptance = session.batch
            ? acceptanceOf(session.batch.opened)
            : await accept(session, message, hash);
          if (acceptance !== "first") return acceptance;
          state.isStarted = true;
          const events = new Events();
          const lent = lend(session.client, events);
          try {
            const result = await handler(lent.tx, message);
            if (events.length > 0) await emitMany(session, events.close());
            await processed(session, message, result ?? null);
          } finally {
            lent.end();
          }
          return acceptance;
        },
        [acceptStatement(message, hash)],
      );
    } catch (error) {
      if (state.isStarted || error instanceof Problem || error instanceof UsageError) throw error;
      const detail = "the message cannot be accepted now; try again";
      throw new Problem("DEPENDENCY.unavailable", detail, { retryAfter: 1, cause: error });
    }
  }
}

function replyOf(problem: Problem): Reply {
  const { status, headers, body } = problem.response(randomUUID());
  return { status, headers: Object.fromEntries(headers), body };
}

/** The only value of a header. If it occurs twice, it is unknown which one the sender meant. */
function only(headers: Delivery["headers"], name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  const values = typeof value === "string" ? [value] : (value ?? []);
  return values.length === 1 ? (values[0] ?? "") : "";
}

function parsed(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString("utf8"));
  } catch (cause) {
    throw new Problem("VALIDATION.json", "the message is not valid JSON", { cause });
  }
}
