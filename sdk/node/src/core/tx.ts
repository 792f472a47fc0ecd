/**
 * The transaction that a handler receives: the driver's own object with `emit`, until the handler
 * has finished. Afterwards every use throws, because the connection may serve another request.
 */
import { UsageError } from "./errors.js";
import { ENDED, type Emitter, type Events } from "./events.js";

/** A driver's transaction with {@link Emitter}. */
export type Transactional<Client> = Client & Emitter;

/** A transaction that is lent to a handler. */
export interface Lent<Client> {
  readonly tx: Client & Emitter;
  /** Ends the loan. */
  end(): void;
}

/** Lends a driver's transaction. Its own methods run on the driver's object itself. */
export function lend<Client extends object>(client: Client, events: Events): Lent<Client> {
  let open = true;
  const emit = events.emit.bind(events);
  const check = (): void => {
    if (!open) throw new UsageError(ENDED);
  };
  const tx = new Proxy(client, {
    get(target, name) {
      if (name === "emit") return emit;
      const value: unknown = Reflect.get(target, name, target);
      if (name === "then" || name === "constructor" || isFixed(target, name)) return value;
      check();
      return typeof value === "function" ? bound(target, value as Call, check) : value;
    },
    apply(target, self, args: unknown[]) {
      check();
      return Reflect.apply<unknown, unknown[], unknown>(target as Call, self, args);
    },
  });
  return {
    tx: tx as Client & Emitter,
    end: () => {
      open = false;
    },
  };
}

type Call = (...args: unknown[]) => unknown;

/** Binds a method to its object. Functions with members, such as `trx.fn`, keep them. */
function bound(target: object, method: Call, check: () => void): unknown {
  return new Proxy(method, {
    apply(call, _self, args: unknown[]) {
      check();
      return Reflect.apply(call, target, args);
    },
  });
}

/** Whether a proxy has to return the property itself. */
function isFixed(target: object, name: PropertyKey): boolean {
  const own = Reflect.getOwnPropertyDescriptor(target, name);
  return own !== undefined && !own.configurable && own.writable === false;
}
