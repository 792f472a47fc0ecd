-- Claims a key that has no row, for a phased request, which may begin at a recovery point (?10). This
-- transaction has no events, so its number is random and negative. There is no RETURNING: SQLite would
-- collect the rows in an ephemeral table, and the epoch of a new row is always 1.
INSERT INTO hapax_idempotency_key
    (tenant, operation, key, fingerprint, state, epoch, lease_until, recovery_point, request,
     on_expired, created_at, expires_at, xid)
VALUES (?1, ?2, ?3, ?4, 'in_progress', 1, ?5, ?10, ?6, ?7, ?8, ?9,
        -1 - abs(random() / 2))
