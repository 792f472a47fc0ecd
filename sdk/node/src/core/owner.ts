/**
 * The ownership of a key while its handler runs: the lease, and commits of phases, all of which fail
 * once another owner has the key.
 */
import { isShortStatement, runAlone, SAVEPOINT, type Statement } from "./batch.js";
import type { Database, Row, Session } from "./database.js";
import {
  EndedByHandler,
  isOutsideTransaction,
  isRolledBack,
  sqlState,
  UsageError,
} from "./errors.js";
import { Events } from "./events.js";
import {
  finishStatement,
  nothingHappenedStatement,
  phaseStatement,
  providerKeyStatement,
  renewStatement,
  type Entered,
  type Owned,
} from "./phased-contract.js";
import { Problem, unavailable } from "./problem.js";
import type { HttpResponse } from "./response.js";
import { lend, type Transactional } from "./tx.js";

/** Another owner has the key, so nothing more of this handler is committed. */
export class FencedError extends Problem {
  override name = "FencedError";

  constructor(epoch: string, cause?: unknown) {
    super(
      "CONFLICT.idempotency.in_progress",
      `the key has another owner: the lease of epoch ${epoch} was over, and another process has ` +
        "taken the request over; nothing of this phase was committed",
      { retryAfter: 1, cause },
    );
  }
}

/** Fails if the handler has ended the transaction. */
const RELEASE: Statement = { text: "RELEASE SAVEPOINT hapax_effect", params: [] };
const ENDED = "the request has ended: await every phase and every call before you respond";

/** What a phase has written, for its commit. */
export interface Written<Result> {
  result: Result;
  /** What the next owner needs to know, as JSON. */
  data: string;
}

/** A last transaction, which stays open until the response is known. */
export interface LastPhase<Client> {
  readonly tx: Transactional<Client>;
  /** Commits it with the response. */
  commit(response: HttpResponse): Promise<void>;
  /** Rolls it back as soon as its last statement has ended. */
  rollback(): Promise<void>;
}

/** The owner of a key. */
export class Owner<Client extends object> {
  readonly owned: Owned;
  readonly isResumed: boolean;
  /** Why it is not known whether a phase was committed. */
  lost: unknown;
  private readonly stopping = new AbortController();
  private readonly stopped = new Promise<void>((resolve) => {
    this.signal.addEventListener("abort", () => resolve());
  });
  private isOver = false;
  private isLost = false;
  private heldUntil: number;
  private timer: NodeJS.Timeout | undefined;
  private renewal: Promise<void> = Promise.resolve();
  private commits: Promise<unknown> = Promise.resolve();
  private readonly onFenced: (() => void)[] = [];

  constructor(
    private readonly database: Database<Client>,
    entered: Entered,
    private readonly leaseMs: number,
    askedAt: number,
  ) {
    this.owned = entered.owned;
    this.isResumed = entered.isResumed;
    this.heldUntil = askedAt + leaseMs;
  }

  /** Aborts when the handler has lost its key, or its time is over. */
  get signal(): AbortSignal {
    return this.stopping.signal;
  }

  /** Whether the lease has certainly not expired, by the clock of this process. */
  isHeld(): boolean {
    return !this.isLost && performance.now() < this.heldUntil;
  }

  /** Whether another owner has the key, as far as it is known. */
  isFenced(): boolean {
    return this.isLost;
  }

  /** Rejects when another owner has the key. */
  fenced(): Promise<never> {
    return new Promise((_, reject) => {
      const fence = (): void => reject(new FencedError(this.owned.epoch));
      if (this.isLost) fence();
      else this.onFenced.push(fence);
    });
  }

  /** Throws if the handler may not commit any more. */
  check(): void {
    if (this.isLost) throw new FencedError(this.owned.epoch);
    if (this.lost !== undefined) throw lostCommit(this.lost);
    if (this.isOver) throw new UsageError(ENDED);
  }

  /** Renews the lease until the request ends. */
  keep(): void {
    this.timer = setTimeout(() => {
      const askedAt = performance.now();
      this.renewal = this.run(renewStatement(this.owned, this.leaseMs)).then(
        () => {
          this.heldUntil = askedAt + this.leaseMs;
        },
        // The next renewal is soon. If the lease ends before, the key is still this owner's until
        // another one takes it over.
        () => undefined,
      );
      void this.renewal.then(() => {
        if (!this.isOver && !this.isLost) this.keep();
      });
    }, this.leaseMs / 3);
  }

  /** Ends the handler's use of the key, and waits for a commit that has begun. */
  async settle(): Promise<void> {
    this.isOver = true;
    clearTimeout(this.timer);
    this.stopping.abort();
    await this.commits;
  }

  /** Returns the key for a step at a provider. The lease is renewed before. */
  async providerKey(step: string): Promise<string> {
    this.check();
    const askedAt = performance.now();
    const [row] = await this.run(providerKeyStatement(this.owned, step, this.leaseMs));
    this.heldUntil = askedAt + this.leaseMs;
    // The request may have ended meanwhile, and no call begins after that.
    this.check();
    return String(row?.provider_key);
  }

  /**
   * Runs and commits a phase, and calls `committed` before the request can end. It is rolled back when
   * the request ends, even if `work` never settles.
   */
  async phase<Result>(
    name: string,
    work: (tx: Transactional<Client>) => Promise<Written<Result>>,
    committed: () => void,
  ): Promise<Result> {
    this.check();
    // The request may have ended while the last statements ran.
    const mayCommit = (): void => this.check();
    return this.transaction(
      async (session, commit) => {
        // The request may have ended while it waited for a connection.
        this.check();
        const events = new Events();
        const lent = lend(session.client, events);
        let written: Written<Result>;
        try {
          written = await Promise.race([work(lent.tx), this.ended()]);
        } finally {
          lent.end();
        }
        this.check();
        await commit(phaseStatement(this.owned, name, written.data, events.close()), events);
        return written.result;
      },
      committed,
      mayCommit,
    );
  }

  /** Opens a transaction that is committed with the response. */
  async last(): Promise<LastPhase<Client>> {
    this.check();
    let decide!: (response: HttpResponse | undefined) => void;
    const decision = new Promise<HttpResponse | undefined>((resolve) => (decide = resolve));
    let done!: Promise<void>;
    const tx = await new Promise<Transactional<Client>>((resolve, reject) => {
      done = this.transaction(async (session, commit) => {
        // If the request has ended while it waited for a connection, nothing would end it.
        this.check();
        const events = new Events();
        const lent = lend(session.client, events);
        resolve(lent.tx);
        const response = await decision;
        lent.end();
        if (!response) throw new Dropped();
        await commit(finishStatement(this.owned, response, events.close()), events);
      });
      done.catch(reject);
    });
    return {
      tx,
      commit: (response) => {
        decide(response);
        return done;
      },
      rollback: () => {
        decide(undefined);
        return done.catch(() => undefined);
      },
    };
  }

  /** Stores the response without further rows. */
  async finish(response: HttpResponse): Promise<void> {
    await this.run(finishStatement(this.owned, response, "[]"));
  }

  /** Ends the lease, so that a retry need not wait for it. */
  async giveBack(): Promise<void> {
    // A renewal that arrives later would take the key again.
    await this.renewal;
    await this.run(renewStatement(this.owned, 0));
  }

  /** Releases the key as if it had never been used. */
  async release(): Promise<void> {
    await this.renewal;
    await this.run(nothingHappenedStatement(this.owned));
  }

  /** Rejects when the handler may not commit any more. */
  private async ended(): Promise<never> {
    await this.stopped;
    this.check();
    throw new UsageError(ENDED);
  }

  /** Runs a statement in a separate transaction. */
  private async run(statement: Statement): Promise<Row[]> {
    try {
      return await runAlone(this.database, statement);
    } catch (error) {
      throw this.heeded(error);
    }
  }

  /**
   * Runs a transaction, whose last statement is passed to `commit`. It is rolled back if `mayCommit`
   * throws.
   */
  private async transaction<Result>(
    work: (
      session: Session<Client>,
      commit: (statement: Statement, events: Events) => Promise<void>,
    ) => Promise<Result>,
    committed: () => void = () => undefined,
    mayCommit: () => void = () => undefined,
  ): Promise<Result> {
    const state = { isCommitting: false };
    const begin = (): void => {
      mayCommit();
      state.isCommitting = true;
      this.commits = running.catch(() => undefined);
    };
    const transaction = this.database.transaction(
      async (session) => {
        // A driver with savepoints of its own notices the end of its transaction itself.
        const isGuarded = session.batch !== undefined || !session.savepoint;
        if (isGuarded && !session.batch) await session.query(SAVEPOINT.text, []);
        return work(session, (statement, events) =>
          commit(session, isGuarded ? [RELEASE, statement] : [statement], events, begin),
        );
      },
      [SAVEPOINT],
    );
    const running = transaction.then((result) => {
      committed();
      return result;
    });
    try {
      return await running;
    } catch (error) {
      const heeded = this.heeded(error);
      if (heeded !== error) throw heeded;
      if (state.isCommitting && !isRolledBack(error)) {
        this.lost = error;
        throw lostCommit(error);
      }
      throw isOutsideTransaction(error) ? new EndedByHandler(error) : error;
    }
  }

  /** Returns the error to throw, and records if it says that another owner has the key. */
  private heeded(error: unknown): unknown {
    if (sqlState(error) !== "HX005") return error;
    if (!this.isLost) {
      this.isLost = true;
      this.stopping.abort();
      for (const fence of this.onFenced) fence();
    }
    return new FencedError(this.owned.epoch, error);
  }
}

/** Runs the last statements of a transaction, with COMMIT if the driver can send both together. */
async function commit<Client>(
  session: Session<Client>,
  statements: readonly Statement[],
  events: Events,
  begin: () => void,
): Promise<void> {
  if (session.batch && !events.isOrdered && statements.every(isShortStatement)) {
    begin();
    await session.batch.commit(statements);
    return;
  }
  for (const { text, params } of statements) await session.query(text, params);
  begin();
}

/** Rolls the last transaction back. */
class Dropped extends Error {}

function lostCommit(cause: unknown): Problem {
  return unavailable(
    cause,
    "the result of a commit was lost; send the same request again, which continues after it",
  );
}
