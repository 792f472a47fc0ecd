-- Takes a key over whose lease has lapsed: the row says where its request stopped. A request that
-- was kept stays, for it is the same one.
UPDATE hapax_idempotency_key SET
    epoch = epoch + 1,
    lease_until = ?4,
    request = coalesce(request, ?5)
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
RETURNING epoch, recovery_point, created_at, expires_at
