/** Time limits, and the waits between two looks at a key. */
import { POLL_MS, TIMER_MS_MAX } from "./limits.js";
import { Problem } from "./problem.js";

/** Rejects with `late` at `endsAt`, by `performance.now()`. */
export async function until<Result>(
  endsAt: number,
  work: Promise<Result>,
  late: () => Error = tooLate,
): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), timerMs(endsAt - performance.now()));
  });
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** The problem of a request whose time is over and whose transaction is rolled back. */
export function tooLate(): Problem {
  return new Problem(
    "DEPENDENCY.timeout",
    "the time ran out before the commit; nothing was changed",
  );
}

/** Full jitter under a ceiling that doubles. */
export function pollDelay(count: number): number {
  const [first, most] = POLL_MS;
  return Math.max(1, Math.random() * Math.min(first * 2 ** Math.min(count, 10), most));
}

/** A delay that a timer can have: a longer one would be over at once. */
function timerMs(delayMs: number): number {
  return Math.min(Math.max(delayMs, 0), TIMER_MS_MAX);
}
