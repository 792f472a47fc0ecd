// A client on Node's own HTTP/2: sends orders at once on one connection, each one twice, and prints
// the responses as JSON.
//
//     node http2.mjs ORIGIN KEYS [CA]

import { readFileSync } from "node:fs";
import http2 from "node:http2";

const [origin, keys, ca] = process.argv.slice(2);
const session = http2.connect(origin, ca ? { ca: readFileSync(ca) } : {});
session.on("error", (error) => {
  console.error(error);
  process.exit(1);
});

function order(key) {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ":method": "POST",
      ":path": "/orders",
      "content-type": "application/json",
      "idempotency-key": key,
    });
    let head = {};
    let body = "";
    stream.setEncoding("utf8");
    stream.on("response", (headers) => { head = headers; });
    stream.on("data", (piece) => { body += piece; });
    stream.on("end", () => resolve({ key, status: head[":status"], said: head["idempotency-status"], body }));
    stream.on("error", reject);
    stream.end(JSON.stringify({ item: "tea", for: key }));
  });
}

const wanted = keys.split(",");
const first = await Promise.all(wanted.map(order));
const again = await Promise.all(wanted.map(order));
console.log(JSON.stringify({ protocol: session.alpnProtocol, first, again }));
session.close();
