//! The key table: a lock and a read to claim a key, one write to complete it.
//!
//! While the transaction of a key runs, the key is represented by an advisory lock and not by a
//! row. A claim that does not get the lock returns its connection, waits a little and tries again,
//! so that many duplicates on many nodes hold no connections. The lock and the read are separate
//! statements, so the read sees everything that was committed before the lock was free.
//!
//! A transaction that runs a key also holds the key's payload lock (`payload_lock`). A claim that
//! does not get the key finds out by these locks whether the transaction that has it runs another
//! payload.
//!
//! An optimistic claim does neither. The statement that writes its row takes the lock, and fails if
//! another transaction has it or if there is a row.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    idempotency::{Claim, KeyRecord, KeyState, StoredResponse, Taken, evaluate_claim},
    key::{Fingerprint, Scope},
    keyring::Keyring,
    limits::RETENTION_MAX,
    store::{ClaimOutcome, StoreError},
};
use tokio_postgres::Row;

use crate::{
    error::{corrupt, encrypted, unavailable},
    value::Moment,
};

/// The key of a transaction: locked, or only assumed to be free.
#[derive(Debug)]
pub(crate) struct ClaimedKey {
    pub(crate) claim: Claim,
    pub(crate) row: OldRow,
}

/// The row of a free key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldRow {
    /// There is no row.
    None,
    /// A row that has expired.
    Expired,
    /// Not known: an optimistic claim has neither locked the key nor read its row. It assumes that
    /// there is none, and the statement that stores the response finds out.
    Unread,
}

/// Result of a claim at the locks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyLock {
    /// This transaction has the key.
    Held,
    /// Another transaction has the key. Its payload is the same, or not known.
    Busy,
    /// Another transaction has the key and runs another payload.
    OtherPayload,
}

impl KeyLock {
    /// The meaning of the column `locked`.
    pub(crate) fn of(locked: Option<bool>) -> Self {
        match locked {
            Some(true) => Self::Held,
            Some(false) => Self::Busy,
            None => Self::OtherPayload,
        }
    }
}

/// Evaluates a claim by the rows of `lock` and `find`, in that order; `None` while another
/// transaction has the key.
pub(crate) fn evaluate_rows(
    lock: &[Row],
    find: &[Row],
    claim: &Claim,
    keyring: &Keyring,
) -> Result<Option<ClaimOutcome<OldRow>>, StoreError> {
    let lock = lock
        .first()
        .map_or(KeyLock::Busy, |row| KeyLock::of(row.get("locked")));
    let found = find.first().map(record).transpose()?;
    evaluate(lock, found, claim, keyring)
}

/// Evaluates a claim by the locks of its key, and by the key's row; `None` while another transaction
/// has the key.
///
/// The row must be read after the locks. Another claim holds the locks for a moment even if it then
/// finds a response, which this claim must find too.
pub(crate) fn evaluate(
    lock: KeyLock,
    found: Option<KeyRecord>,
    claim: &Claim,
    keyring: &Keyring,
) -> Result<Option<ClaimOutcome<OldRow>>, StoreError> {
    let old = match found {
        None => OldRow::None,
        Some(record) => {
            let now = record.read_at;
            match evaluate_claim(record, claim, now) {
                // A committed row decides, even if another transaction has the locks.
                Some(taken) => {
                    let taken = keyring.decrypt_taken(&claim.scope, taken);
                    return taken
                        .map(ClaimOutcome::Taken)
                        .map(Some)
                        .map_err(encrypted("stored response"));
                }
                None => OldRow::Expired,
            }
        }
    };
    Ok(match lock {
        KeyLock::Held => Some(ClaimOutcome::Open(old)),
        KeyLock::OtherPayload => Some(ClaimOutcome::Taken(Taken::Mismatch)),
        KeyLock::Busy => None,
    })
}

pub(crate) fn parts(scope: &Scope) -> [&str; 3] {
    [
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
    ]
}

/// The scope of a row with these columns.
pub(crate) fn scope_of(row: &Row) -> [&str; 3] {
    [row.get("tenant"), row.get("operation"), row.get("key")]
}

/// How long a response is kept: the requested retention, limited to the maximum.
pub(crate) fn retention(claim: &Claim) -> Duration {
    claim.retention.min(RETENTION_MAX)
}

/// A response as the columns of its row.
#[derive(Debug)]
pub(crate) struct ResponseColumns {
    pub(crate) status: i16,
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Bytes,
    pub(crate) resource_id: Option<String>,
}

impl ResponseColumns {
    pub(crate) fn of(
        keyring: &Keyring,
        scope: &Scope,
        response: &StoredResponse,
    ) -> Result<Self, StoreError> {
        let kept = keyring.encrypt_response(scope, response);
        let kept = kept.map_err(unavailable)?;
        Ok(Self {
            status: i16::try_from(kept.status).unwrap_or(i16::MAX),
            headers: kept.header_block(),
            body: kept.body.clone(),
            resource_id: kept.resource_id().map(str::to_owned),
        })
    }

    /// The word for the key's state once this is stored.
    pub(crate) fn state(&self) -> &'static str {
        if self.status >= 500 {
            "failed"
        } else {
            "completed"
        }
    }
}

/// A row of the key table, as either driver reads it.
pub(crate) struct KeyColumns<'r> {
    pub(crate) state: &'r str,
    pub(crate) fingerprint: &'r [u8],
    pub(crate) epoch: i64,
    pub(crate) lease_until: Option<Moment>,
    pub(crate) status: Option<i16>,
    pub(crate) headers: Option<&'r [u8]>,
    pub(crate) body: Option<&'r [u8]>,
    pub(crate) created_at: Moment,
    pub(crate) expires_at: Moment,
    pub(crate) read_at: Moment,
}

/// The columns of a row of the key table. It is a macro because the rows of the two drivers have no
/// trait in common.
macro_rules! key_columns {
    ($row:expr) => {
        $crate::idempotency::KeyColumns {
            state: $row.try_get("state")?,
            fingerprint: $row.try_get("fingerprint")?,
            epoch: $row.try_get("epoch")?,
            lease_until: $row.try_get("lease_until")?,
            status: $row.try_get("response_status")?,
            headers: $row.try_get("response_headers")?,
            body: $row.try_get("response_body")?,
            created_at: $row.try_get("created_at")?,
            expires_at: $row.try_get("expires_at")?,
            read_at: $row.try_get("at")?,
        }
    };
}
#[cfg(feature = "sqlx")]
pub(crate) use key_columns;

/// Reads a row of the key table. Its response is not decrypted.
pub(crate) fn record(row: &Row) -> Result<KeyRecord, StoreError> {
    let columns = columns(row).map_err(|error| corrupt(format!("idempotency key: {error}")))?;
    columns.record()
}

fn columns(row: &Row) -> Result<KeyColumns<'_>, tokio_postgres::Error> {
    Ok(key_columns!(row))
}

impl KeyColumns<'_> {
    pub(crate) fn record(self) -> Result<KeyRecord, StoreError> {
        let state = match self.state {
            "in_progress" => KeyState::InProgress,
            "completed" | "failed" => KeyState::Completed,
            "tombstone" => KeyState::Tombstone,
            other => return Err(corrupt(format!("idempotency key in state {other:?}"))),
        };
        let fingerprint = self
            .fingerprint
            .try_into()
            .map_err(|_| corrupt("idempotency key: its fingerprint has not 32 bytes"))?;
        Ok(KeyRecord {
            fingerprint: Fingerprint::from_bytes(fingerprint),
            state,
            epoch: self.epoch,
            lease_until: self.lease_until.map(|Moment(at)| at),
            response: (state == KeyState::Completed)
                .then(|| self.response())
                .transpose()?,
            created_at: self.created_at.0,
            expires_at: self.expires_at.0,
            read_at: self.read_at.0,
        })
    }

    fn response(&self) -> Result<StoredResponse, StoreError> {
        let status = self
            .status
            .ok_or_else(|| corrupt("stored response: it has no status"))?;
        let headers = self.headers.and_then(StoredResponse::parse_header_block);
        let body = self
            .body
            .ok_or_else(|| corrupt("stored response: it has no body"))?;
        Ok(StoredResponse {
            status: status.unsigned_abs(),
            headers: headers.ok_or_else(|| corrupt("stored response: its header block"))?,
            body: Bytes::copy_from_slice(body),
        })
    }
}
