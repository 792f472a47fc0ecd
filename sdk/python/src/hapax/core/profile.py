"""Profiles of the HTTP contract: the statuses, codes and rules of other protocols.

A profile can make an operation stricter. It never weakens a promise of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .fingerprint import FingerprintMode

_DAY = 24 * 3600.0


@dataclass(frozen=True)
class Profile:
    """The protocol that the clients of an operation speak.

    Attributes:
        name: the name in a configuration.
        fingerprint: how bodies are compared, unless the operation says otherwise.
        mismatch: the status of a mismatch.
        requires_key: whether a POST without a key is refused even if the operation accepts it.
        key_optional: whether keys are optional, unless the operation says otherwise.
        needs_uuid_v7: whether keys must be UUIDs of version 7.
        retention_min: the shortest retention in seconds.
        releases_failures: whether a failure always releases its key.
        stores_successes_only: whether an error is never stored.
        refuses_expired: whether an expired key is always refused.
        marks_replays: whether a replay has ``Idempotent-Replayed: true``.
        says_retry_after: whether the problem of a key in progress has the member ``retry_after``.
        codes: the codes that replace the own ones in problems.
    """

    name: str
    fingerprint: FingerprintMode = FingerprintMode.JSON
    mismatch: int = 409
    requires_key: bool = False
    key_optional: bool = False
    needs_uuid_v7: bool = False
    retention_min: float = 0.0
    releases_failures: bool = False
    stores_successes_only: bool = False
    refuses_expired: bool = False
    marks_replays: bool = False
    says_retry_after: bool = False
    codes: dict[str, str] = field(default_factory=dict)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("hapax"),
        Profile("ietf", mismatch=422),
        Profile("stripe", mismatch=400, marks_replays=True),
        Profile(
            "acp",
            fingerprint=FingerprintMode.JSON_SEMANTIC,
            mismatch=422,
            requires_key=True,
            retention_min=_DAY,
            releases_failures=True,
            marks_replays=True,
            codes={
                "VALIDATION.idempotency_key.missing": "idempotency_key_required",
                "CONFLICT.idempotency.payload_mismatch": "idempotency_conflict",
                "CONFLICT.idempotency.in_progress": "idempotency_in_flight",
            },
        ),
        Profile("ucp", fingerprint=FingerprintMode.RAW, retention_min=_DAY),
        Profile(
            "adcp",
            fingerprint=FingerprintMode.JSON_SEMANTIC,
            releases_failures=True,
            stores_successes_only=True,
            refuses_expired=True,
            says_retry_after=True,
            codes={
                "CONFLICT.idempotency.payload_mismatch": "IDEMPOTENCY_CONFLICT",
                "CONFLICT.idempotency.in_progress": "IDEMPOTENCY_IN_FLIGHT",
                "CONFLICT.idempotency.expired": "IDEMPOTENCY_EXPIRED",
            },
        ),
        Profile("iceberg", key_optional=True, needs_uuid_v7=True),
    )
}
"""All profiles by name."""
