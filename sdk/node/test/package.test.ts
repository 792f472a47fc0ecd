/** The packed archive: its files, the start of the README in an empty folder, and the examples. */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Signer, sign } from "hapax/inbox";
import { PACKAGE, scratch, type Scratch } from "./support/database.js";
import { until } from "./support/http.js";
import { startProvider } from "./support/provider.js";

const run = promisify(execFile);
const folder = mkdtempSync(join(tmpdir(), "hapax-package-"));
const children: ChildProcess[] = [];
let db: Scratch;
let archive: string;

before(async () => {
  db = await scratch();
  // The build is that of the tests; building it again would remove files that they use.
  const { stdout } = await run(
    "npm",
    ["pack", "--json", "--ignore-scripts", "--pack-destination", folder],
    { cwd: PACKAGE },
  );
  const packed = JSON.parse(stdout) as Packed[] | Record<string, Packed>;
  const [{ filename = "", files = [] } = {}] = Object.values(packed);
  archive = join(folder, filename);
  checkFiles(files.map(({ path }) => path));
});
after(async () => {
  for (const child of children) child.kill("SIGKILL");
  await db.drop();
  rmSync(folder, { recursive: true });
});

interface Packed {
  filename?: string;
  files?: { path: string }[];
}

function checkFiles(files: string[]): void {
  const allowed =
    /^(?:dist\/.+\.(?:js|d\.ts)|package\.json|README\.md|CHANGELOG\.md|LICENSE-(?:MIT|APACHE))$/;
  assert.deepEqual(
    files.filter((file) => !allowed.test(file)),
    [],
  );
  const { exports } = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8")) as {
    exports: Record<string, string | { types: string; default: string }>;
  };
  for (const entry of Object.values(exports)) {
    for (const file of typeof entry === "string" ? [entry] : [entry.types, entry.default]) {
      assert.ok(files.includes(file.replace("./", "")), `${file} is not in the archive`);
    }
  }
}

/** The fenced blocks of the README that a reader runs, in order. */
function blocks(): { language: string; text: string }[] {
  const readme = readFileSync(join(PACKAGE, "README.md"), "utf8");
  const start = readme.slice(
    readme.indexOf("## Five-minute start"),
    readme.indexOf("## What a handler"),
  );
  return [...start.matchAll(/^```(sh|js|toml)\n([\s\S]*?)^```$/gm)].map(
    ([, language = "", text = ""]) => ({
      language,
      text,
    }),
  );
}

interface Delivered {
  headers: Record<string, string>;
  body: Buffer;
}

/** A receiver that passes each webhook on, and keeps it. */
async function forwarder(
  target: string,
): Promise<{ url: string; received: Delivered[]; stop(): void }> {
  const received: Delivered[] = [];
  const server = createHttpServer((request, response) => {
    void buffer(request).then(async (body) => {
      const headers = request.headers as Record<string, string>;
      const reply = await deliver(target + (request.url ?? ""), { headers, body });
      response.writeHead(reply.status).end();
      if (reply.ok) received.push({ headers, body });
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const stop = (): void => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${port}`, received, stop };
}

function deliver(url: string, { headers, body }: Delivered): Promise<Response> {
  const sent = Object.entries(headers).filter(([name]) => /^(?:webhook-|content-type)/.test(name));
  return fetch(url, { method: "POST", headers: Object.fromEntries(sent), body });
}

/** Starts the last command of a block, which a reader runs in the background. */
function background(block: string, options: { cwd: string; env: NodeJS.ProcessEnv }): ChildProcess {
  const script = block.replace(/^((?:\w+=\S+ )?)(.*) &$/m, "$1exec $2");
  const child = spawn("bash", ["-ec", script], {
    ...options,
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  return child;
}

test("the five minutes of the README work in an empty folder", { timeout: 240_000 }, async () => {
  const parts = blocks();
  assert.deepEqual(
    parts.map(({ language }) => language),
    ["sh", "js", "sh", "sh", "sh", "toml", "js", "sh", "sh"],
  );
  const empty = await scratch("0");
  await empty.pool.query("DROP TABLE orders; DROP TABLE ledger; DROP SCHEMA hapax");
  const [shop, shipping, relay] = [await freePort(), await freePort(), await freePort()];
  const receiver = await forwarder(`http://127.0.0.1:${shipping}`);
  const here = mkdtempSync(join(folder, "start-"));
  const [install, app, startApp, curls, conflict, toml, inbox, startInbox, startRelay] = parts.map(
    ({ language, text }) =>
      text
        .replaceAll("http://127.0.0.1:3001", language === "toml" ? receiver.url : "")
        .replaceAll("3000", String(shop))
        .replaceAll("3001", String(shipping))
        .replaceAll("3002", String(relay))
        .replace("npm i hapax ", `npm i ${archive} `),
  );
  // The program of Hapax that the environment names, and otherwise the one on the PATH.
  const binary = process.env.HAPAX_BINARY;
  if (binary !== undefined) symlinkSync(binary, join(here, "hapax"));
  writeFileSync(join(here, "app.mjs"), app ?? "");
  writeFileSync(join(here, "shipping.mjs"), inbox ?? "");
  writeFileSync(join(here, "hapax.toml"), toml ?? "");
  const env = {
    ...process.env,
    DATABASE_URL: empty.url,
    PATH: `${here}${delimiter}${process.env.PATH ?? ""}`,
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_prefer_offline: "true",
  };
  const started: ChildProcess[] = [];
  try {
    const options = { cwd: here, env };
    await run("bash", ["-ec", install ?? ""], options);
    for (const block of [startApp, startInbox]) {
      const service = background(block ?? "", options);
      started.push(service);
      if (service.stdout) await once(service.stdout, "data");
    }
    const { stdout } = await run("bash", ["-ec", `${curls ?? ""}${conflict ?? ""}`], options);
    const [first = "", replay = "", refused = "", ...more] = stdout.split(/(?=HTTP\/1\.1)/);
    assert.deepEqual(more, []);
    assert.match(first, /^HTTP\/1\.1 201/);
    assert.match(first, /^idempotency-status: stored\r$/im);
    assert.match(replay, /^HTTP\/1\.1 201/);
    assert.match(replay, /^idempotency-status: replayed\r$/im);
    const bodyOf = (response: string): string | undefined => response.split("\r\n\r\n")[1];
    assert.equal(bodyOf(first), '{"id":"1","item":"tea"}');
    assert.equal(bodyOf(replay), bodyOf(first));
    assert.match(refused, /^HTTP\/1\.1 409[^]*CONFLICT\.idempotency\.payload_mismatch/);
    assert.equal(await empty.count("orders"), 1);

    started.push(background(startRelay ?? "", options));
    await until(() => receiver.received.length > 0, "the webhook", 60_000);
    const [event = assert.fail()] = receiver.received;
    const { type, data } = JSON.parse(event.body.toString()) as Record<string, unknown>;
    assert.deepEqual([type, data], ["order.created", { id: "1", item: "tea" }]);
    const again = await deliver(`http://127.0.0.1:${shipping}/webhooks/shop`, event);
    assert.deepEqual([again.status, again.headers.get("idempotency-status")], [200, "replayed"]);
    assert.equal(await empty.count("shipment"), 1);
    await importWithoutLibraries(here);
  } finally {
    for (const child of started) child.kill("SIGKILL");
    receiver.stop();
    await empty.drop();
  }
});

/** The subpaths without a library of their own work without any. */
async function importWithoutLibraries(cwd: string): Promise<void> {
  const subpaths = [
    "",
    "/pg",
    "/postgres-js",
    "/prisma",
    "/typeorm",
    "/knex",
    "/client",
    "/inbox",
    "/phased",
    "/testing",
  ];
  const imports = subpaths.map((path) => `import "hapax${path}";`).join("");
  await run(process.execPath, ["--input-type=module", "-e", imports], { cwd });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Starts an example, and returns its URL. */
async function example(name: string, env: Record<string, string>): Promise<string> {
  const child = spawn(process.execPath, [join(PACKAGE, "examples", name)], {
    env: { ...process.env, DATABASE_URL: db.url, PORT: "0", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return line.toString().trim();
}

test("the shop and the client of the examples", async () => {
  const url = await example("orders.js", {});
  const journal = join(folder, "example.journal");
  const send = [join(PACKAGE, "examples", "send.js"), `${url}/orders`, journal];
  const { stdout } = await run(process.execPath, send);
  assert.match(stdout, /^201 \{"id":"1","item":"tea","amount":5\}/);
  const refused = await fetch(`${url}/orders`, {
    method: "POST",
    headers: { "content-type": "application/json", "idempotency-key": "k" },
    body: JSON.stringify({ item: "sold out", amount: 1 }),
  });
  assert.equal(refused.status, 409);
  assert.equal(refused.headers.get("idempotency-status"), "stored");
  assert.equal(await db.count("example_order"), 1);
});

test("the webhooks of the examples", async () => {
  const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  const url = await example("webhooks.js", { BANK_SECRET: secret });
  const body = JSON.stringify({ type: "payment.received", data: { amount: 7 } });
  const timestamp = Math.floor(Date.now() / 1000);
  const headers = {
    "webhook-id": "msg_1",
    "webhook-timestamp": String(timestamp),
    "webhook-signature": sign("msg_1", timestamp, Buffer.from(body), [Signer.parse(secret)]),
  };
  for (const repeated of [false, true]) {
    const response = await fetch(`${url}/webhooks/bank`, { method: "POST", headers, body });
    assert.equal(response.status, 200);
    assert.equal(response.headers.has("idempotency-status"), repeated);
  }
  assert.equal(await db.count("example_entry"), 1);
});

test("the payments of the examples", async () => {
  const provider = await startProvider();
  try {
    const url = await example("payments.js", { PROVIDER_URL: provider.url });
    const pay = (key: string, amount: unknown): Promise<Response> =>
      fetch(`${url}/payments`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify({ amount }),
      });
    assert.equal((await pay("p", "much")).status, 400);
    provider.decide = () => "lost";
    assert.equal((await pay("p", 5)).status, 504);
    for (const status of ["stored", "replayed"]) {
      const paid = await pay("p", 5);
      assert.deepEqual([paid.status, await paid.json()], [201, { id: "ch_1", amount: 5 }]);
      assert.equal(paid.headers.get("idempotency-status"), status);
    }
    assert.equal(new Set(provider.calls).size, 1);
    provider.decide = () => "decline";
    const declined = await pay("q", 5);
    assert.deepEqual(
      [declined.status, declined.headers.get("idempotency-status")],
      [402, "stored"],
    );
    assert.equal(await db.count("example_charge"), 1);
    assert.equal(await db.count("hapax.outbox_event WHERE type = 'payment.succeeded'"), 1);
  } finally {
    await provider.stop();
  }
});
