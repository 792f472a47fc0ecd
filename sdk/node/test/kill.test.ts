/** A service that is killed between any two messages of a request: the retry on another node has one effect. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { FaultProxy } from "hapax/testing";
import { scratch, type Scratch } from "./support/database.js";
import { openPg, type Opened } from "./support/drivers.js";
import { startExpress, type Shop } from "./support/frameworks.js";
import { send, until } from "./support/http.js";

let db: Scratch;
let other: Shop;
let driver: Opened;

before(async () => {
  db = await scratch();
  driver = await openPg(db.url);
  other = await startExpress(driver.database, driver.insert, { waitMs: 5_000 });
});
after(async () => {
  await other.stop();
  await driver.close();
  await db.drop();
});

/** Each message of a request, and whether the request is committed when its answer is due. */
const MESSAGES: Record<string, [name: string, text: RegExp, isCommitted: boolean][]> = {
  pg: [
    ["BEGIN, claim and SAVEPOINT", /hapax\.claim/, false],
    ["INSERT", /INSERT INTO orders/, false],
    ["complete and COMMIT", /hapax\.complete/, true],
  ],
  // It sends each statement in its own message.
  kysely: [
    ["BEGIN", /start transaction/, false],
    ["claim", /hapax\.claim/, false],
    ["SAVEPOINT", /SAVEPOINT/, false],
    ["INSERT", /INSERT INTO orders/, false],
    ["complete", /hapax\.complete/, false],
    ["COMMIT", /commit(?!ted)/, true],
  ],
};

for (const [on, name, text, isCommitted] of Object.entries(MESSAGES).flatMap(([on, messages]) =>
  messages.map((message) => [on, ...message] as const),
)) {
  for (const fault of ["hold", "hold-response"] as const) {
    test(`a service on ${on} is killed ${fault === "hold" ? "before" : "after"} ${name}`, async () => {
      const proxy = await FaultProxy.start(db.url);
      const service = await spawnService(proxy.url, on);
      try {
        const [key, id] = [randomUUID(), randomUUID()];
        // The contract is checked once, before the first request.
        await send(service.url, { key: randomUUID(), body: { id: randomUUID() } });
        const isReached = holdAt(proxy, text, fault);
        const lost = send(service.url, { key, body: { id } }).catch((error: unknown) => error);
        await isReached;
        const isEffective = isCommitted && fault === "hold-response";
        if (isEffective)
          await until(
            async () => (await db.count(`orders WHERE id = '${id}'`)) === 1,
            "the commit",
          );
        service.process.kill("SIGKILL");
        await once(service.process, "exit");
        assert.ok((await lost) instanceof Error, "the client received a response");
        assert.equal(await db.count(`orders WHERE id = '${id}'`), isEffective ? 1 : 0);
        const retry = await send(other.url, { key, body: { id } });
        assert.equal(retry.status, 201, retry.body.toString());
        assert.equal(retry.headers["idempotency-status"], isEffective ? "replayed" : "stored");
        assert.equal(await db.count(`orders WHERE id = '${id}'`), 1);
        assert.equal(await db.count(`hapax.outbox_event WHERE aggregate_id = '${id}'`), 1);
      } finally {
        service.process.kill("SIGKILL");
        await proxy.stop();
      }
    });
  }
}

/** Holds the next message with this text. The promise resolves when it was held. */
function holdAt(proxy: FaultProxy, text: RegExp, fault: "hold" | "hold-response"): Promise<void> {
  return new Promise((resolve) => {
    let isHeld = false;
    proxy.decide = (message) => {
      if (isHeld || !text.test(message)) return "pass";
      isHeld = true;
      resolve();
      return fault;
    };
  });
}

async function spawnService(
  url: string,
  driver: string,
): Promise<{ url: string; process: ChildProcess }> {
  const path = fileURLToPath(new URL("support/server.js", import.meta.url));
  const child = spawn(process.execPath, [path], {
    env: { ...process.env, DATABASE_URL: url, DRIVER: driver },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { url: line.toString().trim(), process: child };
}
