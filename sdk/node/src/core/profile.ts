/**
 * Profiles make an operation speak another protocol that has idempotency keys: its statuses, its
 * error codes, and what it demands of keys and of stored responses. A profile can be stricter than
 * the settings of the service, and never weaker.
 */
import type { FingerprintMode } from "./fingerprint.js";

/** The rules of a profile. The page "Profiles" of the book has all of them in one table. */
export interface Profile {
  readonly name: ProfileName;
  readonly fingerprint: FingerprintMode;
  readonly mismatchStatus: number;
  /** Codes of the protocol, which replace Hapax's own in problems. */
  readonly codes: {
    readonly missing?: string;
    readonly mismatch?: string;
    readonly inProgress?: string;
    readonly expired?: string;
  };
  /** Whether a POST without a key is refused even if its operation accepts it. */
  readonly postNeedsKey: boolean;
  /** Whether a request without a key runs unprotected, unless the operation says otherwise. */
  readonly keyOptional: boolean;
  /** Whether keys must be UUIDs of version 7. */
  readonly uuidV7: boolean;
  /** The shortest retention in milliseconds. */
  readonly retentionMinMs: number;
  /** Whether a failure always releases its key. */
  readonly releasesFailures: boolean;
  /** Whether only successes are stored. */
  readonly successesOnly: boolean;
  /** Whether an expired key is always refused. */
  readonly refusesExpired: boolean;
  /** Whether a replay has the header `Idempotent-Replayed`. */
  readonly marksReplays: boolean;
  /** Whether the problem of a key in progress has the member `retry_after`. */
  readonly saysRetryAfter: boolean;
}

/** The name of a profile. */
export type ProfileName = "hapax" | "ietf" | "stripe" | "acp" | "ucp" | "adcp" | "iceberg";

const DAY_MS = 24 * 3600 * 1000;

const HAPAX: Profile = {
  name: "hapax",
  fingerprint: "json",
  mismatchStatus: 409,
  codes: {},
  postNeedsKey: false,
  keyOptional: false,
  uuidV7: false,
  retentionMinMs: 0,
  releasesFailures: false,
  successesOnly: false,
  refusesExpired: false,
  marksReplays: false,
  saysRetryAfter: false,
};

/** All profiles by name. */
export const PROFILES: Readonly<Record<ProfileName, Profile>> = {
  hapax: HAPAX,
  ietf: { ...HAPAX, name: "ietf", mismatchStatus: 422 },
  stripe: { ...HAPAX, name: "stripe", mismatchStatus: 400, marksReplays: true },
  acp: {
    ...HAPAX,
    name: "acp",
    fingerprint: "json-semantic",
    mismatchStatus: 422,
    codes: {
      missing: "idempotency_key_required",
      mismatch: "idempotency_conflict",
      inProgress: "idempotency_in_flight",
    },
    postNeedsKey: true,
    retentionMinMs: DAY_MS,
    releasesFailures: true,
    marksReplays: true,
  },
  ucp: { ...HAPAX, name: "ucp", fingerprint: "raw", retentionMinMs: DAY_MS },
  adcp: {
    ...HAPAX,
    name: "adcp",
    fingerprint: "json-semantic",
    codes: {
      mismatch: "IDEMPOTENCY_CONFLICT",
      inProgress: "IDEMPOTENCY_IN_FLIGHT",
      expired: "IDEMPOTENCY_EXPIRED",
    },
    releasesFailures: true,
    successesOnly: true,
    refusesExpired: true,
    saysRetryAfter: true,
  },
  iceberg: { ...HAPAX, name: "iceberg", keyOptional: true, uuidV7: true },
};
