/**
 * Events of a transaction. They are collected while a handler runs, and written together with the
 * response in one statement. An event exists exactly if the transaction commits.
 */
import { UsageError } from "./errors.js";
import { EVENTS_MAX, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX } from "./limits.js";

/** A payload that is JSON text already, and is kept byte for byte. */
export class JsonText {
  constructor(readonly text: string) {}
}

/** What an event has beside its type and its payload. */
export interface EventOptions {
  /** The object that the event is about. */
  aggregate?: { type: string; id: string };
  /** The number of the event within its aggregate. */
  sequence?: number | bigint;
  /** Headers, such as `traceparent` and `correlation_id`. */
  headers?: Record<string, string>;
  /** The tenant of the event; by default that of the key. */
  tenant?: string;
  /** The event is not delivered before. */
  availableAt?: Date;
  /** Keeps the order of the aggregate by a lock until the transaction ends. */
  ordered?: boolean;
  /** The content type of a payload that is not JSON; required for bytes. */
  contentType?: string;
}

/** Adds events to a transaction. */
export interface Emitter {
  /**
   * Adds an event. The payload is written as JSON, except a {@link JsonText}, which is kept byte
   * for byte, and bytes, which need a `contentType`. The event is written when the handler has
   * finished, together with its response.
   */
  emit(type: string, payload: unknown, options?: EventOptions): Promise<void>;
}

/** The events of one transaction. */
export class Events implements Emitter {
  private readonly rows: Record<string, unknown>[] = [];
  private closed = false;
  /** Whether an event may wait for other transactions. */
  isOrdered = false;

  // It is async so that a mistake in an event rejects, as a statement would.
  async emit(type: string, payload: unknown, options: EventOptions = {}): Promise<void> {
    await Promise.resolve();
    if (this.closed) throw new UsageError(ENDED);
    if (this.rows.length >= EVENTS_MAX) {
      throw new UsageError(`a transaction has at most ${EVENTS_MAX} events`);
    }
    this.rows.push(rowOf(type, payload, options));
    this.isOrdered ||= options.ordered === true;
  }

  /** Ends the collection, and returns the events as the argument `events` of the SQL contract. */
  close(): string {
    this.closed = true;
    return this.rows.length === 0 ? "[]" : JSON.stringify(this.rows);
  }

  /** The number of events. */
  get length(): number {
    return this.rows.length;
  }
}

/** Says that a transaction was used after its end. */
export const ENDED =
  "the transaction of this request has ended: await every statement and emit before you respond";

function rowOf(type: string, payload: unknown, options: EventOptions): Record<string, unknown> {
  if (!/^[A-Za-z0-9._/:-]{1,255}$/.test(type)) {
    throw new UsageError(
      `an event's type has 1 to ${NAME_BYTES_MAX} letters, digits and . _ - / :, not ${JSON.stringify(type)}`,
    );
  }
  return {
    type,
    ...payloadOf(payload, options),
    aggregate_type: options.aggregate?.type,
    aggregate_id: options.aggregate?.id,
    sequence: options.sequence === undefined ? undefined : Number(options.sequence),
    headers: options.headers,
    tenant: options.tenant,
    available_at: options.availableAt?.toISOString(),
    ordered: options.ordered,
  };
}

function payloadOf(payload: unknown, { contentType }: EventOptions): Record<string, string> {
  if (payload instanceof Uint8Array) {
    if (contentType === undefined) {
      throw new UsageError("an event of bytes needs a contentType, such as application/protobuf");
    }
    checkLength(payload.byteLength);
    return {
      payload_base64: Buffer.from(payload).toString("base64"),
      content_type: contentType,
    };
  }
  const text =
    payload instanceof JsonText ? payload.text : (JSON.stringify(payload) as string | undefined);
  if (text === undefined) {
    throw new UsageError("an event's payload is a JSON value, a JsonText or bytes, not undefined");
  }
  checkLength(Buffer.byteLength(text));
  return { payload: text };
}

function checkLength(bytes: number): void {
  if (bytes > PAYLOAD_BYTES_MAX) {
    throw new UsageError(`an event's payload has at most ${PAYLOAD_BYTES_MAX} bytes, not ${bytes}`);
  }
}
