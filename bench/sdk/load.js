// Load generator: posts orders over keep-alive connections, with one request in flight on each.
//
// The request is rendered once, and only the key in it changes. Sockets are used without an HTTP
// library: the generator shares the cores with the service, so it should need less CPU time than
// the service. A response other than the expected one ends the run with an error.
import net from "node:net";
import { performance } from "node:perf_hooks";
import { parseArgs } from "node:util";

const BODY = '{"item":"tea","amount":5}';
const DIGITS = 10;
const END_OF_HEAD = Buffer.from("\r\n\r\n");
const LENGTH = /\r\ncontent-length: *(\d+)/i;

const { values: options } = parseArgs({
  options: {
    port: { type: "string" },
    connections: { type: "string", default: "8" },
    seconds: { type: "string", default: "3" },
    warmup: { type: "string", default: "0.3" },
    prefix: { type: "string" }, // the keys are this and a number
    header: { type: "string", default: "Idempotency-Key" },
    keys: { type: "string", default: "0" }, // 0: a new key for each request
    count: { type: "string", default: "0" }, // 0: until the time is over
    expect: { type: "string", default: "" }, // a header line that each response must have
  },
});
const number = (name) => Number(options[name]);
const keys = number("keys");
const count = number("count");
const expected = options.expect.toLowerCase();

const head = `POST /orders HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${BODY.length}\r\n`;
const beforeDigits = `${head}${options.header}: ${options.prefix}`;
const template = Buffer.from(`${beforeDigits}${"0".repeat(DIGITS)}\r\n\r\n${BODY}`);

let started = 0;
let completed = 0;
let open = 0;
let isMeasuring = false;
let isOver = false;
let latencies = [];
let begin = { at: 0, cpu: process.cpuUsage() };

function fail(reason) {
  console.error(reason);
  process.exit(1);
}

function render() {
  const number = keys > 0 ? started % keys : started;
  started += 1;
  const request = Buffer.from(template);
  request.write(String(number).padStart(DIGITS, "0"), beforeDigits.length, "latin1");
  return request;
}

/** The number of bytes of the response at the start of `bytes`, or 0 if it is not complete. */
function complete(bytes) {
  const at = bytes.indexOf(END_OF_HEAD);
  if (at < 0) return 0;
  const head = bytes.toString("latin1", 0, at);
  if (!head.startsWith("HTTP/1.1 201 ")) fail(`unexpected response:\n${bytes}`);
  if (expected !== "" && !head.toLowerCase().includes(expected)) {
    fail(`expected "${options.expect}" in the response:\n${bytes}`);
  }
  const length = LENGTH.exec(head);
  if (length === null) fail(`a response without Content-Length:\n${bytes}`);
  const end = at + END_OF_HEAD.length + Number(length[1]);
  return bytes.length >= end ? end : 0;
}

function connect() {
  const socket = net.connect(number("port"), "127.0.0.1");
  socket.setNoDelay(true);
  let received = Buffer.alloc(0);
  let sentAt = 0;
  let isIdle = true;
  const send = () => {
    isIdle = isOver || (count > 0 && started >= count);
    if (isIdle) return socket.end();
    sentAt = performance.now();
    socket.write(render());
  };
  socket.on("connect", send);
  socket.on("data", (chunk) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const end = complete(received);
    if (end === 0) return;
    if (received.length > end) fail(`more than one response:\n${received}`);
    received = Buffer.alloc(0);
    completed += 1;
    if (isMeasuring) latencies.push(performance.now() - sentAt);
    send();
  });
  socket.on("error", (error) => fail(`the connection failed: ${error.message}`));
  socket.on("close", () => {
    if (!isIdle) fail("the service closed a connection during a request");
    open -= 1;
    if (open === 0) report();
  });
  open += 1;
}

let measured = { seconds: 0, cpu: { user: 0, system: 0 } };

function measure() {
  isMeasuring = true;
  begin = { at: performance.now(), cpu: process.cpuUsage() };
  setTimeout(
    () => {
      isMeasuring = false;
      isOver = true;
      measured = {
        seconds: (performance.now() - begin.at) / 1000,
        cpu: process.cpuUsage(begin.cpu),
      };
    },
    number("seconds") * 1000,
  );
}

function report() {
  const sorted = Float64Array.from(latencies).sort();
  const quantile = (part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
  const { seconds, cpu } = measured;
  console.log(
    JSON.stringify({
      completed, // with the warm-up
      per_second: sorted.length / seconds,
      p50_ms: quantile(0.5),
      p99_ms: quantile(0.99),
      generator_cpu: (cpu.user + cpu.system) / 1e6 / seconds,
    }),
  );
}

for (let connection = 0; connection < number("connections"); connection += 1) connect();
if (count === 0) setTimeout(measure, number("warmup") * 1000);
