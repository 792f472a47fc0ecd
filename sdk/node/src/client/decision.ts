/** Which attempts may be repeated, and after which wait. Nothing here waits or sends. */

/** How often and how fast one operation is attempted. Times are in milliseconds. */
export interface Backoff {
  /** Ceiling of the first wait. It doubles with each retry. */
  baseMs: number;
  /** Maximum of the ceiling. */
  capMs: number;
  /** Maximum number of attempts, including the first. */
  attemptsMax: number;
  /** Time limit of the operation. */
  totalMs: number;
}

/** 100 ms, doubling up to 2 s; at most 5 attempts in at most 10 s. */
export const BACKOFF: Backoff = { baseMs: 100, capMs: 2_000, attemptsMax: 5, totalMs: 10_000 };

/** Why there was no further attempt. */
export type Stopped = "answered" | "unrepeatable" | "exhausted" | "late" | "retry_after" | "budget";

/** The outcome of an attempt. */
export type Seen =
  /** No response, and nothing of the request was sent. */
  | "not_sent"
  /** No response, and the receiver may have the request. */
  | "lost"
  /** The same, because the time for the attempt has passed. */
  | "timed_out"
  | {
      status: number;
      retryAfterMs: number | undefined;
      isStored: boolean;
      code: string | undefined;
    };

/** What a decision depends on beside the outcome. */
export interface Situation {
  backoff: Backoff;
  isRepeatable: boolean;
  /** The number of the attempt, from 1. */
  attempt: number;
  elapsedMs: number;
  /** A uniform random number from 0 to 1. */
  random: number;
  /** Whether the budget allows a retry. */
  allows: () => boolean;
}

/** What follows an attempt. */
export type Step = { waitMs: number } | { stop: Stopped; retryAfterMs?: number };

const RETRY_AFTER_MAX_MS = 24 * 3600 * 1000;
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);
const IDEMPOTENT = new Set(["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "QUERY"]);
const CODE_BYTES_MAX = 128;

/** Decides what follows an attempt. */
export function decide(seen: Seen, situation: Situation): Step {
  const { backoff, attempt, elapsedMs, random } = situation;
  if (!isPassing(seen)) return { stop: "answered" };
  if (!situation.isRepeatable && seen !== "not_sent") return { stop: "unrepeatable" };
  const left = Math.max(0, backoff.totalMs - elapsedMs);
  const asked = typeof seen === "object" ? (seen.retryAfterMs ?? 0) : 0;
  if (asked > 0 && asked >= left) return { stop: "retry_after", retryAfterMs: asked };
  if (left === 0) return { stop: "late" };
  if (attempt >= backoff.attemptsMax) return { stop: "exhausted" };
  if (!situation.allows()) return { stop: "budget" };
  const ceiling = Math.min(backoff.capMs, backoff.baseMs * 2 ** Math.min(attempt - 1, 60));
  return { waitMs: asked + Math.min(ceiling, Math.max(0, left - asked)) * random };
}

/** Whether another attempt can have another outcome. */
export function isPassing(seen: Seen): boolean {
  if (typeof seen === "string") return true;
  const { status, code, isStored, retryAfterMs } = seen;
  if (isStored || code?.split(".", 1)[0] === "INTERNAL") return false;
  return PASSING.has(status) || (status === 409 && retryAfterMs !== undefined);
}

/** Whether a request may be sent again after any byte of it was sent. */
export function isRepeatable(method: string, hasKey: boolean): boolean {
  return hasKey || IDEMPOTENT.has(method);
}

/** What a response says. `now` is in milliseconds since 1970. */
export function readResponse(
  status: number,
  header: (name: string) => string | null,
  body: Uint8Array,
  now: number,
): Exclude<Seen, string> {
  return {
    status,
    retryAfterMs: retryAfterMs(header("retry-after"), header("date"), now),
    isStored: saysStored(header("idempotency-status")),
    code: problemCode(header("content-type"), body),
  };
}

/** Whether `Idempotency-Status` says that the response is stored. Parameters are ignored. */
export function saysStored(status: string | null): boolean {
  const [word = ""] = (status ?? "").split(";", 1);
  return ["stored", "replayed"].includes(word.trim());
}

/** The `code` of a problem+json response. */
export function problemCode(contentType: string | null, body: Uint8Array): string | undefined {
  const [type = ""] = (contentType ?? "").split(";", 1);
  if (type.trim().toLowerCase() !== "application/problem+json") return undefined;
  try {
    const { code } = JSON.parse(Buffer.from(body).toString("utf8")) as { code?: unknown };
    return typeof code === "string" && Buffer.byteLength(code) <= CODE_BYTES_MAX ? code : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The wait that a response asks for, at most a day. A date is compared with the `Date` of the same
 * response, because the clocks of client and server may differ.
 */
export function retryAfterMs(
  asked: string | null,
  date: string | null,
  now: number,
): number | undefined {
  if (asked === null) return undefined;
  const text = asked.trim();
  if (/^[0-9]+$/.test(text)) return Math.min(Number(text) * 1000, RETRY_AFTER_MAX_MS);
  const moment = httpDate(text);
  if (moment === undefined) return undefined;
  const since = (date === null ? undefined : httpDate(date.trim())) ?? now;
  return Math.min(Math.max(0, moment - since), RETRY_AFTER_MAX_MS);
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const DATES = [
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?<day>\d\d) (?<month>\w{3}) (?<year>\d{4}) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?<day>\d\d)-(?<month>\w{3})-(?<year>\d\d) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?<month>\w{3}) (?<day>[ \d]\d) (?<time>\d\d:\d\d:\d\d) (?<year>\d{4})$/,
];

/** A date of HTTP in its three formats, in milliseconds since 1970. */
function httpDate(text: string): number | undefined {
  const found = DATES.map((format) => format.exec(text)?.groups).find((groups) => groups);
  if (!found) return undefined;
  const { day = "", month = "", time = "" } = found;
  const [hours = 0, minutes = 0, seconds = 0] = time.split(":").map(Number);
  const written = Number(found.year);
  const year = found.year?.length === 2 ? written + (written < 70 ? 2000 : 1900) : written;
  const moment = Date.UTC(
    year,
    MONTHS.indexOf(month),
    Number(day),
    hours,
    minutes,
    Math.min(seconds, 59),
  );
  const parsed = new Date(moment);
  const isDay =
    parsed.getUTCDate() === Number(day) && text.startsWith(WEEKDAYS[parsed.getUTCDay()] ?? "");
  const isReal = isDay && MONTHS.includes(month) && hours < 24 && minutes < 60 && seconds <= 60;
  return isReal && year >= 1970 ? moment : undefined;
}
