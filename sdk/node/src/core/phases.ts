/**
 * The phases of a request, as its handler sees them. Results of phases are stored with the key, so that
 * the next owner of the key continues after the last one.
 */
import { nothingDone, outcomeUnknown, usualOutcome, type CallOptions } from "./call.js";
import { UsageError } from "./errors.js";
import type { LastPhase, Owner, Written } from "./owner.js";
import { CALLED, checkName, checkOwn, checkStep, UNDONE } from "./phase-names.js";
import { dataOf, jsonOf } from "./phase-results.js";
import { Problem } from "./problem.js";
import type { Transactional } from "./tx.js";

/** The phases of a request. They run one after the other. */
export class Phases<Client extends object> {
  private point: string | undefined;
  private readonly results: Map<string, unknown>;
  /** Whether the last phase was recorded by a program that stores no results. */
  private isForeign: boolean;
  /** What is open: a phase of the handler, or the record of a call. */
  private open: "phase" | "record" | undefined;
  private cameToNothing = false;
  private lastPhase: LastPhase<Client> | undefined;
  /** The steps whose provider keys this owner has requested. */
  private readonly requested = new Set<string>();
  /** The steps whose calls are running, and whether the provider recognizes a repeated one. */
  private readonly running = new Map<string, boolean>();
  /** The end of the last record of a call. */
  private recording: Promise<unknown> = Promise.resolve();
  /** The steps whose outcome is unknown. */
  private readonly unknown = new Set<string>();
  /** Whether each name that this owner has used is that of a phase or of a call. */
  private readonly uses = new Map<string, "phase" | "call">();

  /** The package creates it. */
  constructor(
    private readonly owner: Owner<Client>,
    point: string | undefined,
    data: unknown,
  ) {
    this.point = point;
    const recorded = typeof data === "object" && data !== null ? Object.entries(data) : [];
    this.results = new Map(recorded);
    this.isForeign = point !== undefined && !this.results.has(point);
    progress.set(this, () => ({
      isUntouched: !this.isResumed && this.requested.size === 0 && this.point === undefined,
      cameToNothing: this.cameToNothing,
      isUnknown: this.unknown.size > 0,
      last: this.lastPhase as LastPhase<never> | undefined,
    }));
  }

  /** The name of the last committed phase, of this attempt or an earlier one. */
  get recoveryPoint(): string | undefined {
    return this.point;
  }

  /** Whether the key had an earlier owner that did not finish. A call of it may still arrive. */
  get isResumed(): boolean {
    return this.owner.isResumed;
  }

  /** Aborts when the handler has lost its key, or its time is over. */
  get signal(): AbortSignal {
    return this.owner.signal;
  }

  /** Whether the key certainly still belongs to this owner, by the clock of this process. */
  isHeld(): boolean {
    return this.owner.isHeld();
  }

  /**
   * Runs `work` in a transaction, and commits it as the phase `name` with its events and its result. If
   * the phase was committed before, by this owner or an earlier one, `work` does not run. The result is
   * returned as JSON returns it: return what a later phase needs, such as an id, and no secrets.
   *
   * Call no other system in it. An error rolls it back. No call has the same name, and no name of a
   * phase or a call ends in " called" or " undone": the records of the package do.
   */
  async transaction<Result>(
    name: string,
    work: (tx: Transactional<Client>) => Promise<Result>,
  ): Promise<Result> {
    this.owner.check();
    this.use(name, "phase");
    if (this.isRecorded(name)) return this.results.get(name) as Result;
    return this.commit(name, async (tx, results) => {
      const result = jsonOf(name, await work(tx));
      results.set(name, result);
      return result;
    });
  }

  /**
   * Undoes the committed phase `name` in a transaction, after which it counts as not committed: the
   * next attempt runs it again.
   */
  async undo<Result>(
    name: string,
    work: (tx: Transactional<Client>) => Promise<Result>,
  ): Promise<Result> {
    this.owner.check();
    checkOwn(name);
    const [undone, undo] = undoing(name, work);
    return this.commit(undone, undo);
  }

  /**
   * Calls a provider in the step `step`, under a key that is the same for every attempt. Returns its
   * result, throws the {@link Problem} of a refusal, or a problem that says that the outcome is unknown.
   * The key of the request then stays in progress, and a retry finds the outcome out.
   *
   * The result is stored with the next phase. Return what the handler needs, and no secrets. A result that
   * cannot be stored is refused, and the outcome of the call is unknown.
   */
  async call<Value>(
    step: string,
    run: (key: string, signal: AbortSignal) => Promise<Value>,
    options: CallOptions<Value> = {},
  ): Promise<Value> {
    this.beginCall();
    this.use(step, "call");
    if (this.running.has(step)) {
      throw new UsageError(`a call of the step ${JSON.stringify(step)} is running: await it`);
    }
    if (this.results.has(step)) return this.results.get(step) as Value;
    this.running.set(step, options.recognizesKeys ?? true);
    try {
      return await this.make(step, run, options);
    } finally {
      this.running.delete(step);
    }
  }

  /** Calls the provider, unless the call is recorded. */
  private async make<Value>(
    step: string,
    run: (key: string, signal: AbortSignal) => Promise<Value>,
    options: CallOptions<Value>,
  ): Promise<Value> {
    const { recognizesKeys = true } = options;
    const mark = `${step}${CALLED}`;
    if (!recognizesKeys && !this.results.has(mark)) checkStep(step);
    const isFirst = !recognizesKeys || (!this.isResumed && !this.requested.has(step));
    const key = await this.providerKey(step);
    if (!recognizesKeys) {
      if (this.results.has(mark)) return this.lookUp(step, key, options, undefined);
      await this.record(mark, (_, results) => Promise.resolve(void results.set(mark, null)));
    }
    // Also if the handler does not wait for the call.
    this.unknown.add(step);
    // The request may have ended after the last commit.
    this.owner.check();
    let value: Value;
    try {
      value = await run(key, this.signal);
    } catch (error) {
      this.owner.check();
      return this.failed(step, key, options, error, isFirst);
    }
    return this.succeeded(step, jsonOf(step, value), options);
  }

  /**
   * The key for a step at a provider, which is the same for every attempt. It has the form of a UUID.
   * After it was requested, a failure does not release the key of the request, because the provider may
   * have received it. `call` requests it.
   */
  async providerKey(step: string): Promise<string> {
    this.beginCall();
    this.requested.add(step);
    this.cameToNothing = false;
    return this.owner.providerKey(step);
  }

  /**
   * Declares that the request had no effect in any other system, and that no call is under way. If the
   * handler then fails, the key is released. Rows of committed phases stay: undo them before. A later
   * phase or call revokes it.
   *
   * Returns false, and the key stays in progress, if it had an earlier owner.
   */
  nothingHappened(): boolean {
    this.cameToNothing = !this.isResumed;
    if (this.cameToNothing) this.unknown.clear();
    return this.cameToNothing;
  }

  /**
   * Opens the last transaction. What is written in it is committed with the response, or rolled back
   * if the response is a refusal or a failure. It is optional.
   */
  async last(): Promise<Transactional<Client>> {
    this.begin("phase");
    this.open = "phase";
    try {
      const last = await this.owner.last();
      this.lastPhase = last;
      return last.tx;
    } finally {
      this.open = undefined;
    }
  }

  private async failed<Value>(
    step: string,
    key: string,
    options: CallOptions<Value>,
    error: unknown,
    isFirst: boolean,
  ): Promise<Value> {
    const outcome = (options.outcome ?? usualOutcome)(error);
    const isTrusted = isFirst || options.remembersRefusals === true;
    if (outcome instanceof Problem && isTrusted) throw this.settled(step, outcome);
    if (outcome === "nothing_happened" && isFirst) {
      this.settled(step, undefined);
      // The mark would forbid the call in the next attempt.
      if (options.recognizesKeys === false) {
        await this.record(...undoing(`${step}${CALLED}`, () => Promise.resolve()));
      }
      if (this.requested.size === 1 && !this.hasEffect()) this.nothingHappened();
      throw nothingDone(step, error);
    }
    return this.lookUp(step, key, options, error);
  }

  /** Asks the provider for the outcome, which otherwise stays unknown. */
  private async lookUp<Value>(
    step: string,
    key: string,
    options: CallOptions<Value>,
    cause: unknown,
  ): Promise<Value> {
    this.unknown.add(step);
    let found: Value | undefined;
    try {
      found = await options.lookUp?.(key, this.signal);
    } catch (error) {
      this.owner.check();
      const outcome = usualOutcome(error);
      if (outcome instanceof Problem) throw this.settled(step, outcome);
      throw outcomeUnknown(step, options, cause ?? error);
    }
    if (found === undefined) throw outcomeUnknown(step, options, cause);
    return this.succeeded(step, jsonOf(step, found), options);
  }

  private async succeeded<Value>(
    step: string,
    value: Value,
    { recognizesKeys = true }: CallOptions<Value>,
  ): Promise<Value> {
    // The outcome of a call that cannot be recorded stays unknown to the next owner.
    dataOf(step, new Map(this.results).set(step, value));
    this.settled(step, undefined);
    if (recognizesKeys) {
      // Stored with the next phase. Until then, a repeated call returns the same.
      this.results.set(step, value);
      return value;
    }
    return this.record(step, (_, results) => {
      results.set(step, value);
      return Promise.resolve(value);
    });
  }

  /** Records that the outcome of a step is known. */
  private settled<Value>(step: string, value: Value): Value {
    this.unknown.delete(step);
    return value;
  }

  /** Commits the record of a call, after those of other calls. */
  private record<Result>(name: string, work: Work<Client, Result>): Promise<Result> {
    const recorded = this.recording.then(() => this.commit(name, work, "record"));
    this.recording = recorded.catch(() => undefined);
    return recorded;
  }

  /** Commits a phase. `work` changes the results, which count once the phase is committed. */
  private async commit<Result>(
    name: string,
    work: Work<Client, Result>,
    open: "phase" | "record" = "phase",
  ): Promise<Result> {
    this.begin(open);
    checkName(name);
    // A phase that fails may have been meant to undo something.
    this.cameToNothing = false;
    this.open = open;
    const results = new Map(this.results);
    const before = [...results.keys()];
    try {
      return await this.owner.phase(
        name,
        async (tx): Promise<Written<Result>> => {
          const written = await work(tx, results);
          return { result: written, data: dataOf(name, results) };
        },
        () => {
          for (const known of before) if (!results.has(known)) this.results.delete(known);
          for (const [known, recorded] of results) this.results.set(known, recorded);
          this.point = name;
        },
      );
    } finally {
      this.open = undefined;
    }
  }

  /** Checks that a phase can begin. */
  private begin(open: "phase" | "record"): void {
    this.owner.check();
    if (this.open !== undefined) throw new UsageError(OPEN);
    // The call would end while the phase is open, and its result could not be recorded.
    if (open === "phase" && [...this.running.values()].includes(false)) {
      throw new UsageError("a call that is never repeated is running: await it before a phase");
    }
    if (this.lastPhase) throw new UsageError("the last phase is open: respond");
  }

  /** Checks that a call can begin: in a phase, it would wait for a second connection. */
  private beginCall(): void {
    this.owner.check();
    if (this.open === "phase") throw new UsageError(OPEN);
    if (this.lastPhase) throw new UsageError("the last phase is open: call before it, or respond");
  }

  /** Refuses the name of a phase for a call, that of a call for a phase, and that of a record. */
  private use(name: string, use: "phase" | "call"): void {
    checkOwn(name);
    if ((this.uses.get(name) ?? this.recordedUse(name) ?? use) !== use) {
      throw new UsageError(
        `${JSON.stringify(name)} is the name of a phase and of a call: the second one would not ` +
          "run, because its result would be that of the first one; use two names",
      );
    }
    this.uses.set(name, use);
  }

  /** What an earlier attempt has used a name for, as far as the records say it. */
  private recordedUse(name: string): "phase" | "call" | undefined {
    if (this.results.has(`${name}${CALLED}`)) return "call";
    return this.point === name && this.results.has(name) ? "phase" : undefined;
  }

  private isRecorded(name: string): boolean {
    if (this.isForeign) {
      if (name !== this.point) {
        throw new UsageError(
          `the key is at the recovery point ${JSON.stringify(this.point)} of a program that stores ` +
            `no results of phases, so it is not known whether ${JSON.stringify(name)} was committed: ` +
            "read phases.recoveryPoint, and continue after it",
        );
      }
      this.isForeign = false;
      this.results.set(name, null);
    }
    return this.results.has(name);
  }

  /** Whether rows of a committed phase are there. */
  private hasEffect(): boolean {
    return this.isForeign || [...this.results.keys()].some((name) => !name.endsWith(UNDONE));
  }
}

/** What a phase does. It changes the results. */
type Work<Client, Result> = (
  tx: Transactional<Client>,
  results: Map<string, unknown>,
) => Promise<Result>;

/** The name and the work of the phase that undoes another one. */
function undoing<Client, Result>(
  name: string,
  work: (tx: Transactional<Client>) => Promise<Result>,
): [undone: string, work: Work<Client, Result>] {
  const undone = `${name}${UNDONE}`;
  return [
    undone,
    async (tx, results) => {
      const result = await work(tx);
      results.delete(name);
      results.set(undone, null);
      return result;
    },
  ];
}

const OPEN = "a phase is open: await it before the next phase or call";

/** What the end of a request depends on. */
export interface Progress {
  /** Whether the key can be released as if it had never been used. */
  isUntouched: boolean;
  cameToNothing: boolean;
  /** Whether the outcome of a call is unknown. */
  isUnknown: boolean;
  last: LastPhase<never> | undefined;
}

/** The progress of each request, which its handler does not see. */
const progress = new WeakMap<object, () => Progress>();

/** The progress of a request at its end. */
export function progressOf(phases: Phases<never>): Progress {
  return (progress.get(phases) as () => Progress)();
}
