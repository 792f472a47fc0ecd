// Receives webhooks and verifies them: `v1` with the `standardwebhooks` library of npm, `v1a` with
// the ed25519 of Node itself, because no published library supports `v1a`.
//
// Usage: verify.js SECRET, where SECRET begins with whsec_ or whpk_. Prints its port. Responds with
// 204 if the signature is valid, and with 400 if it is not.
"use strict";

const crypto = require("node:crypto");
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const secret = process.argv[2];
const verify = secret.startsWith("whpk_") ? byPublicKey(secret) : byLibrary(secret);

function byLibrary(secret) {
  const webhook = new Webhook(secret);
  return (body, headers) => webhook.verify(body, headers);
}

function byPublicKey(secret) {
  const x = Buffer.from(secret.slice("whpk_".length), "base64").toString("base64url");
  const key = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  return (body, headers) => {
    const head = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`;
    const signed = Buffer.concat([Buffer.from(head), body]);
    const fits = headers["webhook-signature"]
      .split(" ")
      .filter((entry) => entry.startsWith("v1a,"))
      .some((entry) => crypto.verify(null, signed, key, Buffer.from(entry.slice(4), "base64")));
    if (!fits) throw new Error("no signature fits");
    return JSON.parse(body);
  };
}

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let accepted = false;
  try {
    const event = verify(Buffer.concat(chunks), request.headers);
    accepted = Object.keys(event).sort().join() === "data,timestamp,type";
  } catch {}
  response.writeHead(accepted ? 204 : 400).end();
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
