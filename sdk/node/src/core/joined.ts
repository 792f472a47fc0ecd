/** Functions of the SQL contract in a transaction that the caller has opened and will commit. */
import { accept, claim, complete, emitMany, processed, release } from "./contract.js";
import type { Acceptance, ClaimOptions, ClaimOutcome, MessageId, Scope } from "./contract.js";
import type { Session } from "./database.js";
import { Events, type EventOptions } from "./events.js";
import { RETENTION_MS } from "./limits.js";
import { sha256 } from "./parts.js";
import type { HttpResponse } from "./response.js";

/** A transaction of the caller. Nothing here commits. */
export class Joined<Client = unknown> {
  constructor(private readonly session: Session<Client>) {}

  /** The driver's transaction. */
  get client(): Client {
    return this.session.client;
  }

  /** Adds an event, and returns its id. */
  async emit(type: string, payload: unknown, options?: EventOptions): Promise<string> {
    const events = new Events();
    await events.emit(type, payload, options);
    const [id = ""] = await emitMany(this.session, events.close());
    return id;
  }

  /** Accepts a message once. `body` is the payload as it was received. */
  accept(message: MessageId, body: Uint8Array): Promise<Acceptance> {
    return accept(this.session, message, sha256(body));
  }

  /** Records that the effect of an accepted message was written. */
  processed(message: MessageId, result: string | null = null): Promise<void> {
    return processed(this.session, message, result);
  }

  /** Claims a key without waiting. `fingerprint` has 32 bytes. */
  claim(
    scope: Scope,
    fingerprint: Buffer,
    options: Partial<ClaimOptions> = {},
  ): Promise<ClaimOutcome> {
    const { retentionMs = RETENTION_MS, onExpired = "new" } = options;
    return claim(this.session, scope, fingerprint, { retentionMs, onExpired });
  }

  /** Stores the response under the claimed key. */
  complete(scope: Scope, response: HttpResponse): Promise<void> {
    return complete(this.session, scope, response, "[]");
  }

  /** Releases the claimed key. */
  release(scope: Scope): Promise<void> {
    return release(this.session, scope);
  }
}
