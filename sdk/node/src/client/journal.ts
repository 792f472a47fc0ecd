/**
 * The journal: the keys under which operations were sent, which must survive a crash of the client.
 *
 * A client that dies after it has sent a request does not know whether the request had an effect.
 * It is safe to send it again under the same key, and only under that key. So the key is recorded
 * before the first byte is sent, and removed when the outcome is known.
 */
import {
  mkdir,
  open,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
  type FileHandle,
} from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Parts } from "../core/parts.js";

/** The identity of an operation. */
export interface Intent {
  /** The caller's name for it, which distinguishes equal requests. */
  name: string | undefined;
  method: string;
  url: string;
  /** The hash of the body in hexadecimal. */
  body: string;
}

/** The key of an operation that starts or is continued. */
export interface Begun {
  key: string;
  /** Whether an earlier run may have sent it. */
  isResumed: boolean;
  /** The age of the record in milliseconds; undefined if it is in the future. */
  ageMs: number | undefined;
}

/** Where keys are recorded before anything is sent under them. */
export interface Journal {
  /**
   * Records that an operation is about to be sent under `fresh`. If it is unfinished under another
   * key, that key is kept. The record must survive a crash when the promise resolves.
   */
  begin(intent: Intent, fresh: string): Promise<Begun>;
  /** Removes an operation whose outcome is known. */
  finish(intent: Intent, key: string): Promise<void>;
  /** Removes an operation that had no effect, unless another run has continued under the key. */
  withdraw(intent: Intent, key: string): Promise<void>;
}

/** What a final response means for its key. */
export type Fate = "known" | "nothing" | "unknown";

const MISMATCHES = new Set([
  "CONFLICT.idempotency.payload_mismatch",
  "idempotency_conflict",
  "IDEMPOTENCY_CONFLICT",
]);

/**
 * Decides what a final response means for its key. A 401 or a 404 says nothing about an earlier
 * attempt whose response was lost. A server error may come from a proxy that has given up.
 */
export function fateOf(
  status: number,
  isStored: boolean,
  code: string | undefined,
  inDoubt: boolean,
): Fate {
  const isSuccess = status >= 200 && status < 300;
  if (isSuccess || isStored || MISMATCHES.has(code ?? "")) return "known";
  // A gateway has sent an earlier attempt, and does not know its outcome.
  const isUnknown = code === "CONFLICT.idempotency.outcome_unknown";
  return !inDoubt && !isUnknown && status < 500 ? "nothing" : "unknown";
}

/** The identity of a request. */
export function intentOf(method: string, url: string, body: Uint8Array, name?: string): Intent {
  return { name, method, url, body: new Parts(1).add(body).digest().toString("hex") };
}

interface Open extends Intent {
  state: "open";
  key: string;
  at_ms: number;
}
type Line = Open | { state: "done"; key: string; at_ms: number };

/** How far a record may be in the future, in milliseconds, after the clock was corrected. */
const AHEAD_MS = 60_000;
/** How long an access waits for the lock, in milliseconds. */
const LOCK_MS = 5_000;
/** The size from which finished entries are removed, in bytes. */
const SHORTEN_BYTES = 1024 * 1024;

/**
 * A journal in a file, one line for each key, synced before anything is sent under the key. Several
 * processes of this package on one machine may share it. The lines are those of `hapax-client`, but
 * the lock is another one, so a process in Rust must not use the file at the same time.
 */
export class FileJournal implements Journal {
  constructor(private readonly path: string) {}

  begin(intent: Intent, fresh: string): Promise<Begun> {
    return this.locked(async (file, lines) => {
      const first = unfinished(lines).find((line) => isFor(line, intent));
      if (!first) {
        await this.append(file, {
          state: "open",
          key: fresh,
          at_ms: Date.now(),
          ...intent,
        });
        return { key: fresh, isResumed: false, ageMs: 0 };
      }
      // The process that started it may still be running, and must not remove the key meanwhile.
      await this.append(file, { ...first, at_ms: Date.now() });
      return { key: first.key, isResumed: true, ageMs: ageOf(first, lines) };
    });
  }

  finish(_intent: Intent, key: string): Promise<void> {
    return this.locked((file) => this.append(file, { state: "done", key, at_ms: Date.now() }));
  }

  withdraw(_intent: Intent, key: string): Promise<void> {
    return this.locked(async (file, lines) => {
      const isShared = unfinished(lines).filter((line) => line.key === key).length > 1;
      if (!isShared) await this.append(file, { state: "done", key, at_ms: Date.now() });
    });
  }

  private async append(file: FileHandle, line: Line): Promise<void> {
    await file.appendFile(`${JSON.stringify(line)}\n`);
    await file.sync();
  }

  private async locked<Result>(
    act: (file: FileHandle, lines: Line[]) => Promise<Result>,
  ): Promise<Result> {
    const unlock = await lock(`${this.path}.lock.d`);
    let file: FileHandle | undefined;
    try {
      await this.shorten();
      file = await open(this.path, "a+", 0o600);
      await syncFolder(this.path);
      const text = await file.readFile();
      const whole = wholeLength(text);
      if (whole < text.length) await file.truncate(whole);
      return await act(file, parseLines(text.subarray(0, whole), this.path));
    } finally {
      await file?.close();
      await unlock();
    }
  }

  /** Removes finished entries if the file has grown. */
  private async shorten(): Promise<void> {
    const { size } = await stat(this.path).catch(() => ({ size: 0 }));
    if (size < SHORTEN_BYTES) return;
    const text = await readFile(this.path);
    const lines = unfinished(parseLines(text.subarray(0, wholeLength(text)), this.path));
    const file = await open(`${this.path}.new`, "w", 0o600);
    try {
      await file.writeFile(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(`${this.path}.new`, this.path);
  }
}

function unfinished(lines: Line[]): Open[] {
  const done = (line: Open, at: number): boolean =>
    lines.slice(at + 1).some((later) => later.state === "done" && later.key === line.key);
  return lines.flatMap((line, at) => (line.state === "open" && !done(line, at) ? [line] : []));
}

function isFor(line: Open, intent: Intent): boolean {
  const { name, method, url, body } = intent;
  return line.name === name && line.method === method && line.url === url && line.body === body;
}

/** If the clock was set back, the latest line gives a lower bound of the current time. */
function ageOf(line: Open, lines: Line[]): number | undefined {
  const now = Date.now();
  if (line.at_ms > now + AHEAD_MS) return undefined;
  return Math.max(0, Math.max(now, ...lines.map((each) => each.at_ms)) - line.at_ms);
}

/**
 * The length without an incomplete last line. If a line was not synced, the disk may contain its
 * end with zero bytes before it.
 */
function wholeLength(text: Buffer): number {
  const last = text.lastIndexOf(0x0a);
  if (last < 0) return 0;
  const start = text.subarray(0, last).lastIndexOf(0x0a) + 1;
  return text.subarray(start, last).includes(0) ? start : last + 1;
}

function parseLines(text: Buffer, path: string): Line[] {
  return text
    .toString("utf8")
    .split("\n")
    .flatMap((line, at): Line[] => (line.trim() === "" ? [] : [parseLine(line, at + 1, path)]));
}

function parseLine(line: string, number: number, path: string): Line {
  try {
    const record = JSON.parse(line) as Line;
    if (["open", "done"].includes(record.state)) return record;
  } catch {
    // Reported below.
  }
  throw new Error(`line ${number} of the journal ${path} is not a valid record`);
}

/** Creates a folder as a lock. A lock whose process has ended is removed. */
async function lock(path: string): Promise<() => Promise<void>> {
  const until = Date.now() + LOCK_MS;
  for (;;) {
    try {
      await mkdir(path);
      await writeFile(join(path, "pid"), String(process.pid));
      return () => rm(path, { recursive: true, force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    if (await isAbandoned(path)) {
      // Only one of the processes that see this succeeds in renaming the folder.
      const aside = `${path}.${process.pid}`;
      await rename(path, aside).catch(() => undefined);
      await rm(aside, { recursive: true, force: true });
    } else if (Date.now() > until) {
      throw new Error(`another process has held ${path} for ${LOCK_MS / 1000} s`);
    } else {
      await pause(5);
    }
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  const text = await readFile(join(path, "pid"), "utf8").catch(() => "");
  if (text === "") {
    // The process has died between the two steps, or is between them.
    const made = await stat(path).catch(() => undefined);
    return made !== undefined && Date.now() - made.mtimeMs > LOCK_MS / 2;
  }
  try {
    process.kill(Number(text), 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}

/** The name of a new file survives a crash only if its folder is synced. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(dirname(path), "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
