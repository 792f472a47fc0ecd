/**
 * Retry budget: limits the load that all retries to one destination add. A balance holds
 * thousandths of a retry. First attempts, time and successes add to it; retries and failures
 * subtract from it. All amounts are integers, so that 10 % is exact at any rate.
 */

/** One retry, in the unit of all amounts in this file. */
const RETRY = 1_000;

/** What is added and subtracted, in thousandths of a retry. */
export interface Budget {
  /** Maximum of the balance, and so of the retries at one moment. */
  max: number;
  /** Initial balance. */
  initial: number;
  /** Minimum balance after a retry. */
  reserve: number;
  /** Added for a first attempt. */
  perRequest: number;
  /** Added per second. */
  perSecond: number;
  /** Added for an operation that succeeds. */
  perSuccess: number;
  /** Subtracted for a retry. */
  perRetry: number;
  /** Subtracted for an attempt that failed and could be retried. */
  perFailure: number;
}

const NOTHING: Budget = {
  max: 0,
  initial: 0,
  reserve: 0,
  perRequest: 0,
  perSecond: 0,
  perSuccess: 0,
  perRetry: 0,
  perFailure: 0,
};

/** Budgets for the option `budget` of a client. */
export const budgets = {
  /**
   * 10 % of first attempts, half a retry per second, and five at once: a single operation has all
   * its attempts.
   */
  standard: (): Budget => ({
    ...NOTHING,
    max: 5 * RETRY,
    initial: 5 * RETRY,
    perRequest: 100,
    perSecond: 500,
    perRetry: RETRY,
  }),
  /** 10 % of first attempts and one retry per second, without reserve, in every window. */
  strict: (): Budget => ({
    ...NOTHING,
    max: RETRY,
    initial: RETRY,
    perRequest: 100,
    perSecond: RETRY,
    perRetry: RETRY,
  }),
  /** Retry throttling of gRPC: retries need more than half of the tokens. */
  grpc: (tokensMax: number, ratioMilli: number): Budget => ({
    ...NOTHING,
    max: tokensMax * RETRY,
    initial: tokensMax * RETRY,
    reserve: Math.floor((tokensMax * RETRY) / 2) + 1,
    perSuccess: ratioMilli,
    perFailure: RETRY,
  }),
  /** Retry budget of Finagle: a request adds `percent` of a retry, a second adds `perSecond`. */
  finagle: (percent: number, perSecond: number, max: number): Budget => ({
    ...NOTHING,
    max: max * RETRY,
    initial: max * RETRY,
    perRequest: Math.floor((percent * RETRY) / 100),
    perSecond: perSecond * RETRY,
    perRetry: RETRY,
  }),
  /** No limit except the number of attempts, for a program that performs one operation. */
  unbounded: (): Budget => NOTHING,
} as const;

/** The balance of one destination. Times are in milliseconds. */
export class Balance {
  private held: number;
  /** Millionths of a retry that time has added and that do not make a thousandth yet. */
  private rest = 0;

  constructor(
    private readonly budget: Budget,
    private seenAt: number,
  ) {
    this.held = Math.min(budget.initial, budget.max);
  }

  /** The balance, in thousandths of a retry. */
  get amount(): number {
    return this.held;
  }

  /** Whether the balance equals that of a destination without previous requests. */
  isFresh(now: number): boolean {
    this.pass(now);
    return this.held >= Math.min(this.budget.initial, this.budget.max);
  }

  /** Records a first attempt. */
  first(now: number): void {
    this.pass(now);
    this.payIn(this.budget.perRequest);
  }

  /** Records an operation that succeeded. */
  succeeded(now: number): void {
    this.pass(now);
    this.payIn(this.budget.perSuccess);
  }

  /** Records an attempt that failed and could be retried. */
  failed(now: number): void {
    this.pass(now);
    this.held = Math.max(0, this.held - this.budget.perFailure);
  }

  /** Whether a retry could be sent now. */
  allows(now: number): boolean {
    this.pass(now);
    return this.held >= this.budget.reserve + this.budget.perRetry;
  }

  /** Subtracts a retry at the moment at which it is sent; false if the balance is too low. */
  take(now: number): boolean {
    const allowed = this.allows(now);
    if (allowed) this.held = Math.max(0, this.held - this.budget.perRetry);
    return allowed;
  }

  /** Adds the amount for the time since the last call. A clock that was set back adds nothing. */
  private pass(now: number): void {
    const millis = Math.max(0, now - this.seenAt);
    this.seenAt = now;
    const earned = millis * this.budget.perSecond + this.rest;
    this.rest = earned % RETRY;
    this.payIn(Math.floor(earned / RETRY));
  }

  private payIn(amount: number): void {
    this.held = Math.min(this.held + amount, this.budget.max);
    if (this.held === this.budget.max) this.rest = 0;
  }
}
