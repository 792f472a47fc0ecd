// An HTTP service with an append-only ledger, for HTTP/1.1, or with --http2 for HTTP/2 with prior
// knowledge. It has the ledger, the answers and the main faults of server.py, and for HTTP/2 the ones
// that only that protocol has: `refuse` (REFUSED_STREAM), `goaway`, `reset` and
// `cancel`, which reset the stream of a response.
//
//     node server.mjs --ledger FILE [--port N] [--http2]

import { createHash, randomBytes } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import http from "node:http";
import http2 from "node:http2";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    ledger: { type: "string" },
    port: { type: "string", default: "0" },
    http2: { type: "boolean", default: false },
  },
});
if (!values.ledger) {
  throw new Error("--ledger is required");
}
closeSync(openSync(values.ledger, "a"));
const entries = readFileSync(values.ledger, "utf8").split("\n").filter(Boolean).map((it) => JSON.parse(it));
const ledger = openSync(values.ledger, "a");
const digest = (content) => createHash("sha256").update(content).digest("hex");

function append(key, body) {
  const n = entries.length + 1;
  const text = JSON.stringify({ id: n, key, nonce: randomBytes(8).toString("hex") });
  const entry = { key, hash: digest(body), n, answer: digest(text), text };
  writeSync(ledger, JSON.stringify(entry) + "\n");
  fsyncSync(ledger);
  entries.push(entry);
  return entry;
}

function faultsOf(headers) {
  const asked = new Map();
  for (const part of (headers["x-fault"] ?? "").split(",")) {
    const [name, value] = part.trim().split("=");
    if (name) asked.set(name, Number(value ?? 0));
  }
  return asked;
}

function keyOf(headers) {
  const key = headers["idempotency-key"];
  return key === undefined ? null : key.replace(/^"(.*)"$/, "$1");
}

function kill() {
  process.kill(process.pid, "SIGKILL");
}

function read(stream, then) {
  const pieces = [];
  stream.on("data", (piece) => pieces.push(piece));
  stream.on("end", () => then(Buffer.concat(pieces)));
  stream.on("error", () => {});
}

// What both protocols do before they answer. Returns nothing if there is no answer.
function act(headers, body, close) {
  const faults = faultsOf(headers);
  if (faults.has("hang-before")) return undefined;
  if (faults.has("kill-before")) kill();
  const entry = append(keyOf(headers), body);
  if (faults.has("kill-after")) kill();
  if (faults.has("hang")) return undefined;
  if (faults.has("close")) {
    close();
    return undefined;
  }
  return { entry, faults };
}

function look(path) {
  const key = decodeURIComponent(path.replace("/by-key/", ""));
  return entries.find((it) => it.key === key);
}

function serve1(request, response) {
  const path = request.url.split("?")[0];
  if (request.method === "GET" && path.startsWith("/by-key/")) {
    const entry = look(path);
    response.writeHead(entry ? 200 : 404, { "Content-Type": "application/json" });
    response.end(entry ? entry.text : "{}");
    return;
  }
  read(request, (body) => {
    const acted = act(request.headers, body, () => request.socket.destroy());
    if (!acted) return;
    const { entry, faults } = acted;
    const status = faults.get("status") ?? 201;
    const send = () => {
      if (faults.has("cut")) {
        const head = `HTTP/1.1 ${status} Status\r\nX-Answer: ${entry.answer}\r\nContent-Length: ${entry.text.length}\r\n\r\n`;
        request.socket.end((head + entry.text).slice(0, faults.get("cut")));
        return;
      }
      response.writeHead(status, { "Content-Type": "application/json", "X-Answer": entry.answer });
      response.end(entry.text);
    };
    setTimeout(send, faults.get("slow-head") ?? 0);
  });
}

function serve2(stream, headers) {
  stream.on("error", () => {});
  const path = headers[":path"].split("?")[0];
  const faults = faultsOf(headers);
  if (faults.has("refuse")) {
    stream.close(http2.constants.NGHTTP2_REFUSED_STREAM);
    return;
  }
  if (faults.has("goaway")) {
    // Stream 0 is the last one that was processed, so this one was not.
    stream.session.goaway(http2.constants.NGHTTP2_NO_ERROR, 0);
    setTimeout(() => stream.session?.destroy(), 50);
    return;
  }
  if (headers[":method"] === "GET" && path.startsWith("/by-key/")) {
    const entry = look(path);
    stream.respond({ ":status": entry ? 200 : 404 });
    stream.end(entry ? entry.text : "{}");
    return;
  }
  read(stream, (body) => {
    const acted = act(headers, body, () => stream.session.destroy());
    if (!acted) return;
    const { entry } = acted;
    const send = () => {
      if (stream.destroyed) return;
      stream.respond({ ":status": faults.get("status") ?? 201, "content-type": "application/json", "x-answer": entry.answer });
      if (faults.has("reset")) {
        // close() would end the stream before it resets it.
        stream.on("error", () => {});
        stream.write(entry.text.slice(0, 7), () => stream.destroy(new Error("reset")));
        return;
      }
      if (faults.has("cancel")) {
        stream.on("error", () => {});
        stream.write(entry.text.slice(0, 7), () => stream.destroy(aborted));
        return;
      }
      stream.end(entry.text);
    };
    setTimeout(send, faults.get("slow-head") ?? 0);
  });
}

// A stream that is destroyed with this error is reset with the code CANCEL.
const aborted = await once(new EventEmitter(), "never", { signal: AbortSignal.abort() }).catch((error) => error);

const server = values.http2 ? http2.createServer() : http.createServer(serve1);
if (values.http2) {
  server.on("stream", serve2);
  server.on("sessionError", () => {});
}
server.on("clientError", (_, socket) => socket.destroy());
server.listen(Number(values.port), "127.0.0.1", () => {
  console.log(`listening ${server.address().port}`);
});
