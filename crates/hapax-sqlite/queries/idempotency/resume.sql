-- Takes over a key whose lease has expired. The row contains the last recovery point. A request
-- that is stored already is kept, because it is the same request.
UPDATE hapax_idempotency_key SET
    epoch = epoch + 1,
    lease_until = ?4,
    request = coalesce(request, ?5)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
RETURNING epoch, recovery_point, created_at, expires_at
