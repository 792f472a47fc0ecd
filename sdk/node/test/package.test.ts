/** The packed archive: its files, the start of the README in an empty folder, and the examples. */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Signer, sign } from "hapax/inbox";
import { PACKAGE, scratch, type Scratch } from "./support/database.js";

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
    readme.indexOf("## Five minutes"),
    readme.indexOf("## What a handler"),
  );
  return [...start.matchAll(/^```(sh|js)\n([\s\S]*?)^```$/gm)].map(
    ([, language = "", text = ""]) => ({
      language,
      text,
    }),
  );
}

test("the five minutes of the README work in an empty folder", { timeout: 80_000 }, async () => {
  const parts = blocks();
  await db.pool.query("DROP TABLE orders");
  assert.deepEqual(
    parts.map(({ language }) => language),
    ["sh", "js", "sh", "sh"],
  );
  const port = await freePort();
  const here = mkdtempSync(join(folder, "start-"));
  const [install, program, start, curls] = parts.map(({ text }) =>
    text.replaceAll("3000", String(port)).replace("npm i hapax ", `npm i ${archive} `),
  );
  // The schema exists already: the tests have no binary of Hapax.
  writeFileSync(
    join(here, "hapax"),
    '#!/bin/sh\ntest "$1" = migrate && test -n "$HAPAX__DATABASE__URL"\n',
  );
  chmodSync(join(here, "hapax"), 0o755);
  writeFileSync(join(here, "app.mjs"), program ?? "");
  const env = {
    ...process.env,
    DATABASE_URL: db.url,
    PATH: `${here}${delimiter}${process.env.PATH ?? ""}`,
    npm_config_audit: "false",
    npm_config_fund: "false",
    npm_config_prefer_offline: "true",
  };
  await run("bash", ["-ec", install ?? ""], { cwd: here, env });
  const service = spawn("bash", ["-ec", (start ?? "").replace(/^node(.*)&$/m, "exec node$1")], {
    cwd: here,
    env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(service);
  await once(service.stdout, "data");
  const { stdout } = await run("bash", ["-ec", curls ?? ""], { cwd: here, env });
  const responses = stdout.split(/(?=HTTP\/1\.1)/);
  assert.equal(responses.length, 2, stdout);
  for (const [at, status] of ["stored", "replayed"].entries()) {
    assert.match(responses[at] ?? "", /^HTTP\/1\.1 201/);
    assert.match(responses[at] ?? "", new RegExp(`^idempotency-status: ${status}\r$`, "mi"));
    assert.match(responses[at] ?? "", /\{"id":"1","item":"tea"\}/);
  }
  // The subpaths without a library of their own work without any.
  const subpaths = [
    "",
    "/pg",
    "/postgres-js",
    "/prisma",
    "/typeorm",
    "/knex",
    "/client",
    "/inbox",
    "/testing",
  ];
  const imports = subpaths.map((path) => `import "hapax${path}";`).join("");
  await run(process.execPath, ["--input-type=module", "-e", imports], { cwd: here });
});

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
