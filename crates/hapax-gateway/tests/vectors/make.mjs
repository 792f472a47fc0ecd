// Makes requests with the libraries of the providers, and records how each library judges them.
//
// Usage: NODE_PATH=node_modules node make.mjs SEED TIME > cases.json
//        node make.mjs paypal > paypal.json
//
// The libraries are those of `packages.txt`, which the test `ingest::libraries` installs without the
// packages that they need for other things than signatures. The bodies
// and secrets depend on SEED only, and the requests are signed at TIME, in seconds since the Unix
// epoch, which is also the time at which the libraries verify. A case is valid if the library says
// so. Each scheme has at least one valid request, and the same request with a change.
import crypto from "node:crypto";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

const require = createRequire(path.join(process.env.NODE_PATH ?? "/", "resolve.js"));

if (process.argv[2] === "paypal") {
  console.log(JSON.stringify(paypal(), null, 2));
  process.exit(0);
}

const seed = process.argv[2];
const time = Number(process.argv[3]);
const cases = [];

// Numbers that depend on the seed only.
let drawn = 0;
function draw(bytes) {
  const wide = [];
  while (wide.length * 32 < bytes) {
    wide.push(crypto.createHash("sha256").update(`${seed} ${drawn++}`).digest());
  }
  return Buffer.concat(wide).subarray(0, bytes);
}
const word = () => draw(8).toString("hex");
// Texts with what parsers and encoders get wrong.
const text = () => `${word()} é€😀 "\\/ +%2B&= \u2028 ${word()}`;

const folderOf = (library) => path.join(process.env.NODE_PATH, library);

function manifest(library) {
  return JSON.parse(fs.readFileSync(path.join(folderOf(library), "package.json")));
}

// Adds a request and changes of it. `judge` asks the library.
async function add(library, request, judge, changes = []) {
  const head = { library, version: manifest(library).version, time };
  const others = [...changes, { name: "another secret", secret: request.other }];
  for (const change of [{ name: "as signed" }, ...others]) {
    const { name, ...changed } = change;
    const changedRequest = { ...request, ...changed };
    changedRequest.headers = { ...request.headers, ...changed.headers };
    delete changedRequest.other;
    let valid = false;
    try {
      valid = (await judge(changedRequest)) === true;
    } catch {}
    cases.push({ ...head, name, ...changedRequest, valid });
  }
}

function flipped(text) {
  const at = text.length >> 1;
  return text.slice(0, at) + (text[at] === "x" ? "y" : "x") + text.slice(at + 1);
}

async function stripe() {
  const stripe = require("stripe");
  const { webhooks } = new stripe("sk_test_x");
  const [secret, other] = [`whsec_${word()}`, `whsec_${word()}`];
  const id = `evt_${word()}`;
  const body = JSON.stringify({ id, object: "event", type: "invoice.paid", data: text() });
  const sign = (body, timestamp, secret) =>
    webhooks.generateTestHeaderString({ payload: body, secret, timestamp });
  const judge = ({ headers, body, secret }) => {
    webhooks.constructEvent(body, headers["stripe-signature"], secret, 300, undefined, time * 1000);
    return true;
  };
  const signature = sign(body, time, secret);
  const request = { scheme: "stripe", secret, other, headers: { "stripe-signature": signature }, body, id };
  const header = (value) => ({ headers: { "stripe-signature": value } });
  await add("stripe", request, judge, [
    { name: "changed body", body: flipped(body) },
    { name: "empty body", body: "" },
    { name: "old", ...header(sign(body, time - 301, secret)) },
    { name: "almost old", ...header(sign(body, time - 299, secret)) },
    { name: "another time", ...header(signature.replace(`t=${time}`, `t=${time - 1}`)) },
    { name: "cut signature", ...header(signature.slice(0, -1)) },
    { name: "not hexadecimal", ...header(signature.replace(/.$/, "g")) },
    { name: "another version", ...header(signature.replace("v1=", "v0=")) },
    { name: "two signatures", ...header(`${sign(body, time, other)},${signature.split(",")[1]}`) },
    { name: "empty header", ...header("") },
  ]);
}

async function github() {
  const { sign, verify } = await import(esm("@octokit/webhooks-methods"));
  const [secret, other, id] = [word(), word(), word()];
  const body = JSON.stringify({ action: "opened", title: text() });
  const signature = await sign(secret, body);
  const judge = ({ headers, body, secret }) => verify(secret, body, headers["x-hub-signature-256"]);
  const headers = { "x-hub-signature-256": signature, "x-github-event": "issues", "x-github-delivery": id };
  const header = (value) => ({ headers: { "x-hub-signature-256": value } });
  await add("@octokit/webhooks-methods", { scheme: "github", secret, other, headers, body, id }, judge, [
    { name: "changed body", body: flipped(body) },
    { name: "empty body", body: "" },
    { name: "cut signature", ...header(signature.slice(0, -1)) },
    { name: "not hexadecimal", ...header(signature.replace(/.$/, "g")) },
    { name: "another algorithm", ...header(signature.replace("sha256=", "sha1=")) },
    { name: "empty header", ...header("") },
  ]);
}

async function shopify() {
  const compiled = path.join(folderOf("@shopify/shopify-api"), "dist", "cjs");
  require(path.join(compiled, "adapters", "node", "index.js"));
  const { validateFactory } = require(path.join(compiled, "lib", "webhooks", "validate.js"));
  const [secret, other] = [word(), word()];
  const body = JSON.stringify({ id: 820982911946154500, note: text() });
  const event = word();
  const id = `${event}/orders/create`;
  const signature = crypto.createHmac("sha256", secret).update(body).digest("base64");
  const judge = async ({ headers, body, secret }) => {
    const validate = validateFactory({ apiSecretKey: secret, logger: { level: 0, log: () => {} } });
    const rawRequest = { method: "POST", url: "/in/shop", headers };
    return (await validate({ rawBody: body, rawRequest, rawResponse: {} })).valid;
  };
  const headers = {
    "x-shopify-hmac-sha256": signature,
    "x-shopify-topic": "orders/create",
    "x-shopify-shop-domain": "a.myshopify.com",
    "x-shopify-api-version": "2026-01",
    "x-shopify-webhook-id": word(),
    "x-shopify-event-id": event,
  };
  const header = (value) => ({ headers: { "x-shopify-hmac-sha256": value } });
  await add("@shopify/shopify-api", { scheme: "shopify", secret, other, headers, body, id }, judge, [
    { name: "changed body", body: flipped(body) },
    { name: "empty body", body: "" },
    { name: "cut signature", ...header(signature.slice(0, -2)) },
    { name: "another signature", ...header(flipped(signature)) },
    { name: "empty header", ...header("") },
  ]);
}

async function slack() {
  const verifier = path.join(folderOf("@slack/bolt"), "dist", "receivers", "verify-request.js");
  const { isValidSlackRequest } = require(verifier);
  const [secret, other] = [word(), word()];
  const id = `Ev${word()}`;
  const body = JSON.stringify({ type: "event_callback", event_id: id, event: { type: "message", text: text() } });
  const sign = (timestamp, body) => {
    const mac = crypto.createHmac("sha256", secret).update(`v0:${timestamp}:${body}`);
    return { "x-slack-signature": `v0=${mac.digest("hex")}`, "x-slack-request-timestamp": `${timestamp}` };
  };
  const judge = ({ headers, body, secret }) => {
    const timestamp = Number(headers["x-slack-request-timestamp"]);
    return isValidSlackRequest({
      signingSecret: secret,
      body,
      headers: { ...headers, "x-slack-request-timestamp": timestamp },
      nowMilliseconds: time * 1000,
    });
  };
  const headers = { ...sign(time, body), "content-type": "application/json" };
  const signature = headers["x-slack-signature"];
  const header = (value) => ({ headers: { "x-slack-signature": value } });
  await add("@slack/bolt", { scheme: "slack", secret, other, headers, body, id }, judge, [
    { name: "changed body", body: flipped(body) },
    { name: "empty body", body: "" },
    { name: "old", headers: sign(time - 301, body) },
    { name: "almost old", headers: sign(time - 299, body) },
    { name: "another time", headers: { "x-slack-request-timestamp": `${time - 1}` } },
    { name: "cut signature", ...header(signature.slice(0, -1)) },
    { name: "another version", ...header(signature.replace("v0=", "v1=")) },
    { name: "empty header", ...header("") },
  ]);
}

async function twilio() {
  const verifier = path.join(folderOf("twilio"), "lib", "webhooks", "webhooks.js");
  const { getExpectedTwilioSignature, validateRequest, validateRequestWithBody } = require(verifier);
  const [secret, other] = [word(), word()];
  const url = "https://hooks.example/in/twilio";
  const form = new URLSearchParams([
    ["MessageSid", `SM${word()}`],
    ["MessageStatus", "delivered"],
    ["Body", text()],
    ["Empty", ""],
    ["Media", "b"],
    ["Media", "a"],
    ["Media", "b"],
    ["a.b-c_d", "~'()*"],
  ]);
  const parameters = (body) => {
    const parsed = {};
    for (const [name, value] of new URLSearchParams(body)) (parsed[name] ??= []).push(value);
    return Object.fromEntries(
      Object.entries(parsed).map(([name, values]) => [name, values.length > 1 ? values : values[0]]),
    );
  };
  const whole = ({ query }) => (query === undefined ? url : `${url}?${query}`);
  const judge = (request) =>
    validateRequest(
      request.secret,
      request.headers["x-twilio-signature"],
      whole(request),
      parameters(request.body),
    );
  const sign = (of, body) => getExpectedTwilioSignature(secret, of, parameters(body));
  const body = form.toString();
  const query = "a=1&b=x%20y&c=it's";
  const type = { "content-type": "application/x-www-form-urlencoded" };
  const signed = sign(`${url}?${query}`, body);
  const header = (value) => ({ headers: { "x-twilio-signature": value } });
  const request = { scheme: "twilio", secret, other, url, query, headers: { ...type, ...header(signed).headers }, body };
  await add("twilio", request, judge, [
    { name: "changed body", body: body.replace("delivered", "failed") },
    { name: "empty body", body: "" },
    { name: "another query", query: "a=2" },
    { name: "another order", body: body.split("&").reverse().join("&") },
    { name: "signed with the port", ...header(sign(`https://hooks.example:443/in/twilio?${query}`, body)) },
    { name: "cut signature", ...header(signed.slice(0, -2)) },
    { name: "another signature", ...header(flipped(signed)) },
    { name: "empty header", ...header("") },
  ]);
  const json = JSON.stringify([{ specversion: "1.0", id: word(), data: text() }]);
  const hash = crypto.createHash("sha256").update(json).digest("hex");
  const hashed = `x=1&bodySHA256=${hash}`;
  const byBody = (request) =>
    validateRequestWithBody(request.secret, request.headers["x-twilio-signature"], whole(request), request.body);
  const ofJson = getExpectedTwilioSignature(secret, `${url}?${hashed}`, {});
  const withJson = { "content-type": "application/json", "x-twilio-signature": ofJson };
  await add("twilio", { scheme: "twilio", secret, other, url, query: hashed, headers: withJson, body: json }, byBody, [
    { name: "changed body", body: flipped(json) },
    { name: "empty body", body: "" },
    { name: "another hash", query: flipped(hashed) },
  ]);
}

async function adyen() {
  const file = path.join(folderOf("@adyen/api-library"), "lib", "src", "utils", "hmacValidator.js");
  const validator = new (require(file).default)();
  const [secret, other] = [draw(32), draw(32)].map((it) => it.toString("hex").toUpperCase());
  const reference = word();
  const id = `AUTHORISATION:${reference}:true`;
  const item = (change = {}) => {
    const item = {
      eventCode: "AUTHORISATION",
      eventDate: "2026-11-28T10:00:00+01:00",
      merchantAccountCode: "TestMerchant",
      merchantReference: `a:b\\c ${text()}`,
      pspReference: reference,
      amount: { currency: "EUR", value: 1130 },
      success: "true",
      reason: "unsigned",
      ...change,
    };
    const hmacSignature = validator.calculateHmac(item, secret);
    return { additionalData: { hmacSignature }, ...item };
  };
  const batch = (...items) =>
    JSON.stringify({ live: "false", notificationItems: items.map((it) => ({ NotificationRequestItem: it })) });
  const judge = ({ body, secret }) => {
    const { notificationItems } = JSON.parse(body);
    const judged = notificationItems.map((it) => validator.validateHMAC(it.NotificationRequestItem, secret));
    return judged.length > 0 && judged.every((it) => it === true);
  };
  const signed = item();
  const changed = (change) => ({ body: batch({ ...signed, ...change }) });
  const request = { scheme: "adyen", secret, other, headers: { "content-type": "application/json" }, body: batch(signed), id };
  await add("@adyen/api-library", request, judge, [
    { name: "two notifications", body: batch(signed, item({ pspReference: word(), originalReference: reference })) },
    { name: "one of two is wrong", body: batch(signed, { ...signed, pspReference: word() }) },
    { name: "another amount", ...changed({ amount: { currency: "EUR", value: 1131 } }) },
    { name: "another currency", ...changed({ amount: { currency: "USD", value: 1130 } }) },
    { name: "another success", ...changed({ success: "false" }) },
    { name: "another merchant reference", ...changed({ merchantReference: "x" }) },
    { name: "an original reference", ...changed({ originalReference: "x" }) },
    { name: "an unsigned member", ...changed({ reason: "changed" }) },
    { name: "no signature", ...changed({ additionalData: {} }) },
    { name: "cut signature", ...changed({ additionalData: { hmacSignature: signed.additionalData.hmacSignature.slice(0, -4) } }) },
    { name: "empty body", body: "" },
  ]);
}

async function standardWebhooks() {
  const { Webhook } = require("standardwebhooks");
  const [secret, other] = [draw(32), draw(32)].map((it) => `whsec_${it.toString("base64")}`);
  const id = `msg_${word()}`;
  const body = JSON.stringify({ type: "order.paid", timestamp: "2026-11-28T10:00:00Z", data: text() });
  const signature = new Webhook(secret).sign(id, new Date(time * 1000), body);
  // The library reads the clock of the system.
  const now = Date.now;
  const judge = ({ headers, body, secret }) => {
    Date.now = () => time * 1000;
    try {
      new Webhook(secret).verify(body, headers);
      return true;
    } finally {
      Date.now = now;
    }
  };
  const headers = { "webhook-id": id, "webhook-timestamp": `${time}`, "webhook-signature": signature };
  const header = (name, value) => ({ headers: { [name]: value } });
  await add("standardwebhooks", { scheme: "standard-webhooks", secret, other, headers, body, id }, judge, [
    { name: "changed body", body: flipped(body) },
    { name: "empty body", body: "" },
    { name: "another id", ...header("webhook-id", "msg_other") },
    { name: "another time", ...header("webhook-timestamp", `${time - 1}`) },
    { name: "old", ...header("webhook-timestamp", `${time - 301}`) },
    { name: "cut signature", ...header("webhook-signature", signature.slice(0, -4)) },
    { name: "two signatures", ...header("webhook-signature", `v1,AAAA ${signature}`) },
    { name: "empty header", ...header("webhook-signature", "") },
  ]);
}

// The entry of a package that has no CommonJS.
function esm(library) {
  const entry = manifest(library).exports["."];
  return path.join(folderOf(library), entry.node?.import ?? entry.node ?? entry.import ?? entry.default);
}

// One request that is signed as PayPal does, with certificates that OpenSSL has made.
function paypal() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "paypal-"));
  const make = (name, ...key) => {
    const [keyFile, pem] = [path.join(folder, `${name}.key`), path.join(folder, `${name}.pem`)];
    const subject = ["-subj", "/CN=messageverificationcerts.example", "-days", "36500"];
    execFileSync("openssl", ["req", "-x509", "-nodes", ...key, "-keyout", keyFile, "-out", pem, ...subject], { stdio: "pipe" });
    return [fs.readFileSync(keyFile, "utf8"), fs.readFileSync(pem, "utf8")];
  };
  const [key, certificate] = make("certificate", "-newkey", "rsa:2048");
  const [, other] = make("other", "-newkey", "rsa:2048");
  const [, ecdsa] = make("ecdsa", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1");
  fs.rmSync(folder, { recursive: true });
  const id = "69cd13f0-d67a-11e5-baa3-778b53f4ae55";
  const time = "2026-11-28T10:00:00Z";
  const webhook_id = "5WA18541XW7650922";
  const body = JSON.stringify({ id: "WH-1", event_type: "PAYMENT.CAPTURE.COMPLETED", resource: { summary: "é" } });
  const signed = `${id}|${time}|${webhook_id}|${crc32(Buffer.from(body))}`;
  const signature = crypto.sign("sha256", Buffer.from(signed), key).toString("base64");
  return { made_by: `OpenSSL ${process.versions.openssl}`, id, time, webhook_id, body, signature, certificate, other, ecdsa };
}

// Bit by bit, unlike the implementation that it tests.
function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

await stripe();
await github();
await shopify();
await slack();
await twilio();
await adyen();
await standardWebhooks();
console.log(JSON.stringify(cases, null, 1));
