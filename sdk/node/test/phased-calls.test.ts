/** Calls of a provider in phases: one key for all attempts, refusals, and outcomes that are unknown. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, afterEach, before, test } from "node:test";
import { Problem, UsageError, type CallOptions, type Phases } from "hapax";
import type { PgTransaction } from "hapax/pg";
import { charge, find, insert, pay, remove, type Charge } from "./support/payments.js";
import { Bench, isUnknown, problemWith, type Work } from "./support/phased.js";

let bench: Bench;

before(async () => {
  bench = await Bench.open();
});
afterEach(() => {
  bench.provider.decide = () => "charge";
});
after(() => bench.close());

test("the result of a call is stored with the next phase", async () => {
  const key = randomUUID();
  await bench.crash(key, (phases) => pay(phases, key, bench.provider.url));
  const calls = bench.provider.calls.length;
  assert.equal((await bench.payment(key)).status, 201);
  assert.equal(bench.provider.calls.length, calls);
  assert.equal(await bench.rows(key), 2);
});

test("every owner calls the provider under the same key", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "lost";
  await assert.rejects(bench.payment(key), isUnknown);
  assert.deepEqual((await bench.row(key))?.is_free, true);
  const charged = await bench.payment(key);
  assert.equal(charged.status, 201);
  const [first, second] = bench.provider.calls.slice(-2);
  assert.match(
    first ?? "",
    /^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  assert.equal(first, second);
  assert.equal(await bench.rows(key), 2);
});

test("a refusal is stored, and a phase that is undone leaves nothing", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "decline";
  const work: Work = async (phases) => {
    try {
      return { status: 201, body: (await pay(phases, key, bench.provider.url)).id };
    } catch (error) {
      if (!problemWith(402, "PROVIDER.card.declined")(error)) throw error;
      await phases.undo("reserved", (tx) => remove(tx, `${key}-reserved`));
      throw error;
    }
  };
  const refused = await bench.run(key, work);
  assert.deepEqual([refused.outcome, refused.status], ["stored", 402]);
  const replayed = await bench.run(key, work);
  assert.deepEqual([replayed.outcome, replayed.status], ["replayed", 402]);
  assert.deepEqual(replayed.body, refused.body);
  assert.equal(await bench.rows(key), 0);
});

test("the refusal of a repeated call is not trusted, unless the provider remembers refusals", async () => {
  const key = randomUUID();
  await bench.crash(key, (phases) => phases.providerKey("charge"));
  bench.provider.decide = () => "decline";
  await assert.rejects(bench.payment(key), isUnknown);
  assert.equal((await bench.row(key))?.state, "in_progress");
  const found = { lookUp: (asked: string) => find(bench.provider.url, asked) };
  await assert.rejects(bench.payment(key, found), isUnknown, "the provider does not know the key");
  const refused = await bench.payment(key, { remembersRefusals: true });
  assert.deepEqual([refused.outcome, refused.status], ["stored", 402]);
});

test("a look-up finds the outcome of a call that was lost", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "lost";
  const calls = bench.provider.calls.length;
  const charged = await bench.payment(key, { lookUp: (asked) => find(bench.provider.url, asked) });
  assert.equal(charged.status, 201);
  assert.equal(bench.provider.calls.length, calls + 1);
});

test("no error is stored while an outcome is unknown", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "fail";
  const work: Work = async (phases) => {
    await phases
      .call("charge", (asked) => charge(bench.provider.url, asked))
      .catch(() => undefined);
    throw new Problem("CONFLICT.state", "the handler gives up", { status: 409 });
  };
  await assert.rejects(bench.run(key, work), problemWith(409, "CONFLICT.state"));
  const { state, is_free: isFree } = (await bench.row(key)) ?? {};
  assert.deepEqual([state, isFree], ["in_progress", true]);
});

test("a call that a handler does not wait for is unknown", async () => {
  const key = randomUUID();
  const work: Work = async (phases) => {
    let reached!: () => void;
    const isCalled = new Promise<void>((resolve) => (reached = resolve));
    const never = phases.call("charge", () => {
      reached();
      return new Promise(() => undefined);
    });
    await Promise.race([never, isCalled]);
    throw new Problem("CONFLICT.state", "the handler gives up", { status: 409 });
  };
  await assert.rejects(bench.run(key, work), problemWith(409, "CONFLICT.state"));
  assert.equal((await bench.row(key))?.state, "in_progress");
});

test("a call whose outcome was unknown did nothing if the handler finds that out", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "fail";
  const work: Work = async (phases) => {
    const failed = phases.call("charge", (asked) => charge(bench.provider.url, asked));
    await assert.rejects(failed, isUnknown);
    assert.equal(phases.nothingHappened(), true);
    throw new Problem("TRANSIENT.provider", "the provider failed", { status: 502 });
  };
  await assert.rejects(bench.run(key, work), problemWith(502, "TRANSIENT.provider"));
  assert.equal(await bench.row(key), undefined);
});

test("a provider that recognizes no keys is never called twice", async () => {
  const key = randomUUID();
  const options = { recognizesKeys: false };
  bench.provider.decide = () => "lost";
  const isConflict = problemWith(409, "CONFLICT.idempotency.outcome_unknown");
  await assert.rejects(bench.payment(key, options), isConflict);
  const calls = bench.provider.calls.length;
  await assert.rejects(bench.payment(key, options), isConflict);
  assert.equal((await bench.row(key))?.recovery_point, "charge called");
  assert.equal((await bench.row(key))?.state, "in_progress");
  const found = await bench.payment(key, {
    ...options,
    lookUp: (asked) => find(bench.provider.url, asked),
  });
  assert.equal(found.status, 201);
  assert.equal(bench.provider.calls.length, calls);
  assert.equal(await bench.rows(key), 2);
});

test("the name of a step that is not repeated leaves room for its record", async () => {
  const key = randomUUID();
  const options: CallOptions<Charge> = {
    recognizesKeys: false,
    outcome: () => "nothing_happened",
  };
  let calls = 0;
  const fail = (): Promise<Charge> => {
    calls += 1;
    return Promise.reject(new Error("no connection"));
  };
  const work: Work = async (phases) => {
    const long = phases.call("é".repeat(121), fail, options);
    await assert.rejects(long, /at most 241 bytes, not 242/);
    assert.equal(calls, 0);
    const longest = phases.call("s".repeat(241), fail, options);
    await assert.rejects(longest, problemWith(503, "DEPENDENCY.unavailable"));
    assert.equal(calls, 1);
    assert.equal(phases.recoveryPoint, `${"s".repeat(241)} called undone`);
    return { status: 201 };
  };
  assert.equal((await bench.run(key, work)).status, 201);
});

test("the result of a call that is not repeated is committed at once", async () => {
  const key = randomUUID();
  const options = { recognizesKeys: false };
  await bench.crash(key, (phases) =>
    phases.call("charge", (asked) => charge(bench.provider.url, asked), options),
  );
  const calls = bench.provider.calls.length;
  assert.equal((await bench.row(key))?.recovery_point, "charge");
  assert.equal((await bench.payment(key, options)).status, 201);
  assert.equal(bench.provider.calls.length, calls);
});

test("a call that did nothing releases the key, unless a phase is committed", async () => {
  const refused = async (key: string, options: CallOptions<Charge>, before: boolean) => {
    const work: Work = async (phases) => {
      if (before) await phases.transaction("reserved", (tx) => insert(tx, key));
      const dead = (asked: string): Promise<Charge> => charge("http://127.0.0.1:1", asked);
      await phases.call("charge", dead, { ...options, outcome: () => "nothing_happened" });
      return { status: 201 };
    };
    const isUnavailable = problemWith(503, "DEPENDENCY.unavailable");
    await assert.rejects(bench.run(key, work), isUnavailable);
  };
  for (const recognizesKeys of [true, false]) {
    const [alone, behind] = [randomUUID(), randomUUID()];
    await refused(alone, { recognizesKeys }, false);
    assert.equal(await bench.row(alone), undefined);
    await refused(behind, { recognizesKeys }, true);
    assert.equal((await bench.row(behind))?.state, "in_progress");
    const resumed = await bench.run(behind, async (phases) => {
      const { id } = await phases.call("charge", (asked) => charge(bench.provider.url, asked), {
        recognizesKeys,
      });
      return { status: 201, body: id };
    });
    assert.equal(resumed.status, 201);
  }
});

test("a call that did nothing does not release the key of another call", async () => {
  const key = randomUUID();
  bench.provider.decide = () => "lost";
  const work: Work = async (phases) => {
    const lost = phases.call("charge", (asked) => charge(bench.provider.url, asked));
    await assert.rejects(lost, isUnknown);
    await phases.call("notify", () => Promise.reject(new Error("refused")), {
      outcome: () => "nothing_happened",
    });
    return { status: 201 };
  };
  await assert.rejects(bench.run(key, work), problemWith(503, "DEPENDENCY.unavailable"));
  assert.equal((await bench.row(key))?.state, "in_progress");
});

test("nothing happened is the first owner's to say", async () => {
  const key = randomUUID();
  const fail = async (phases: Phases<PgTransaction>, expected: boolean): Promise<never> => {
    await phases.providerKey("charge");
    assert.equal(phases.nothingHappened(), expected);
    throw new Error("the provider is down");
  };
  await assert.rejects(
    bench.run(key, (phases) => fail(phases, true)),
    /the provider is down/,
  );
  assert.equal(await bench.row(key), undefined);
  await bench.crash(key, (phases) => phases.providerKey("charge"));
  await assert.rejects(
    bench.run(key, (phases) => fail(phases, false)),
    /the provider is down/,
  );
  assert.equal((await bench.row(key))?.state, "in_progress");
});

test("a mistake of the client releases a key that was not used, and no other", async () => {
  const [fresh, used] = [randomUUID(), randomUUID()];
  const mistake = new Problem("VALIDATION.member", "not this amount", { member: "amount" });
  await assert.rejects(
    bench.run(fresh, () => Promise.reject(mistake)),
    mistake,
  );
  assert.equal(await bench.row(fresh), undefined);
  const late: Work = async (phases) => {
    await phases.providerKey("charge");
    throw mistake;
  };
  await assert.rejects(bench.run(used, late), mistake);
  assert.equal((await bench.row(used))?.state, "in_progress");
});

test("a result that the database does not store is refused by its call, and not by the next phase", async () => {
  const results = [
    "a\0",
    { "a\0": 1 },
    ["\ud800"],
    Array(400_000).fill(1),
    Array(4_000).fill(1e300),
  ];
  for (const recognizesKeys of [true, false]) {
    for (const result of results) {
      const key = randomUUID();
      const work: Work = async (phases) => {
        const call = phases.call<unknown>("charge", () => Promise.resolve(result), {
          recognizesKeys,
        });
        await assert.rejects(call, UsageError);
        throw new Problem("CONFLICT.state", "the handler gives up", { status: 409 });
      };
      await assert.rejects(bench.run(key, work), problemWith(409, "CONFLICT.state"));
      assert.equal((await bench.row(key))?.state, "in_progress", "the outcome is unknown");
    }
  }
});

test("a result that the database stores is recorded", async () => {
  const results = [
    "a\u{1f600}\\u0000",
    Array(349_000).fill(1),
    Array(3_000).fill(-1.5e-300),
    1e300,
  ];
  for (const result of results) {
    const key = randomUUID();
    const ended = await bench.run(key, async (phases) => {
      const call = phases.call<unknown>("charge", () => Promise.resolve(result));
      assert.deepEqual(await call, result);
      await phases.transaction("charged", (tx) => insert(tx, key));
      return { status: 201 };
    });
    assert.equal(ended.outcome, "stored");
  }
});

test("a call is refused while another one of its step is running", async () => {
  for (const recognizesKeys of [true, false]) {
    const key = randomUUID();
    let calls = 0;
    let wake!: () => void;
    const isAwake = new Promise<void>((resolve) => (wake = resolve));
    const run = async (): Promise<number> => {
      calls += 1;
      if (calls > 1) throw new Error("it ran twice");
      await isAwake;
      return calls;
    };
    const work: Work = async (phases) => {
      const first = phases.call("charge", run, { recognizesKeys });
      await assert.rejects(phases.call("charge", run, { recognizesKeys }), /"charge" is running/);
      wake();
      assert.equal(await first, 1);
      assert.equal(await phases.call("charge", run, { recognizesKeys }), 1);
      return { status: 201 };
    };
    assert.equal((await bench.run(key, work)).outcome, "stored");
    assert.equal(calls, 1);
  }
});

test("a phase waits for the record of a call that is never repeated", async () => {
  const key = randomUUID();
  const options = { recognizesKeys: false };
  const work: Work = async (phases) => {
    const calls = await Promise.all(
      ["one", "two", "three"].map((step) =>
        phases.call(
          step,
          async () => {
            const phase = phases.transaction("beside", (tx) => insert(tx, key));
            await assert.rejects(phase, /is running: await it before a phase/);
            await assert.rejects(phases.last(), UsageError);
            return step;
          },
          options,
        ),
      ),
    );
    assert.deepEqual(calls, ["one", "two", "three"]);
    await phases.transaction("after", (tx) => insert(tx, key));
    return { status: 201 };
  };
  assert.equal((await bench.run(key, work)).outcome, "stored");
  assert.equal(await bench.rows(key), 1);
});

test("a phase of an earlier attempt is not the result of a call, nor a call that of a phase", async () => {
  const [phase, call] = [randomUUID(), randomUUID()];
  const charged = (): Promise<string> => Promise.resolve("charged");
  await bench.crash(phase, (phases) => phases.transaction("charge", (tx) => insert(tx, phase)));
  await bench.crash(call, (phases) => phases.call("charge", charged, { recognizesKeys: false }));
  await bench.run(phase, async (phases) => {
    await assert.rejects(phases.call("charge", charged), /the name of a phase and of a call/);
    return { status: 201 };
  });
  await bench.run(call, async (phases) => {
    await assert.rejects(phases.transaction("charge", charged), UsageError);
    return { status: 201 };
  });
});
