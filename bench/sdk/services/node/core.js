// @node-idempotency/core with the storage that VARIANT names.
import { variant } from "./shop.js";

const STORAGES = {
  "node-idempotency-memory": async () => {
    const { MemoryStorageAdapter } = await import("@node-idempotency/storage-adapter-memory");
    return new MemoryStorageAdapter();
  },
  "node-idempotency-redis": async () => {
    const { RedisStorageAdapter } = await import("@node-idempotency/storage-adapter-redis");
    const storage = new RedisStorageAdapter({ url: process.env.REDIS_URL });
    await storage.connect();
    return storage;
  },
};

export async function createIdempotency() {
  const { Idempotency } = await import("@node-idempotency/core");
  return new Idempotency(await STORAGES[variant]());
}
