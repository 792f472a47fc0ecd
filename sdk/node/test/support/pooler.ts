/**
 * pgbouncer in transaction mode, with very few server connections. Each transaction uses the one
 * that was idle longest, so that whatever a transaction leaves on it affects the next one.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";

/** Server connections, fewer than each driver has connections to the pooler. */
export const CONNECTIONS = 3;
/** The shell ends pgbouncer when its input ends, which it also does with this process. */
const GUARD = '"$@" </dev/null & child=$!; read -r _; kill -9 "$child"';

/** What a driver connects to instead of the database. */
export interface Pooler {
  url: string;
  stop(): Promise<void>;
}

/** Starts a pooler before the database of `url`. */
export async function startPooler(url: string): Promise<Pooler> {
  const folder = mkdtempSync(join(tmpdir(), "hapax-pooler-"));
  const pooled = new URL(url);
  pooled.hostname = "127.0.0.1";
  pooled.port = String(await freePort());
  const file = configure(folder, new URL(url), pooled.port);
  // pgbouncer refuses to run as root, and switches to this user itself.
  const user = process.getuid?.() === 0 ? ["-u", "nobody"] : [];
  const args = ["-c", GUARD, "sh", "pgbouncer", "-q", ...user, file];
  const PATH = `${process.env.PATH ?? ""}:/usr/sbin`;
  const child = spawn("sh", args, { env: { ...process.env, PATH } });
  const log: string[] = [];
  child.stderr.on("data", (chunk: Buffer) => log.push(chunk.toString()));
  const stop = async (): Promise<void> => {
    await end(child);
    rmSync(folder, { recursive: true });
  };
  try {
    await ready(pooled.href, log);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: pooled.href, stop };
}

function configure(folder: string, server: URL, port: string): string {
  const file = join(folder, "pgbouncer.ini");
  const user = decodeURIComponent(server.username) || "postgres";
  const lines = [
    "[databases]",
    `* = host=${server.hostname} port=${server.port || "5432"}`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = trust",
    `auth_file = ${join(folder, "users")}`,
    "pool_mode = transaction",
    `default_pool_size = ${CONNECTIONS}`,
    "server_round_robin = 1",
    "server_reset_query =",
  ];
  writeFileSync(file, `${lines.join("\n")}\n`);
  writeFileSync(join(folder, "users"), `"${user}" "${decodeURIComponent(server.password)}"\n`);
  chmodSync(folder, 0o755);
  return file;
}

async function ready(url: string, log: string[]): Promise<void> {
  const deadline = Date.now() + 20_000;
  for (;;) {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
    client.on("error", () => undefined);
    try {
      await client.connect();
      await client.end();
      return;
    } catch (cause) {
      const text = log.join("");
      if (/not found|FATAL/.test(text) || Date.now() > deadline) {
        throw new Error(`pgbouncer did not start; is it installed? ${text}`, { cause });
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const closed = once(child, "close");
  child.stdin?.end();
  await closed;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
