-- Shortens the leases of keys that end later than ?1, so that they end at ?2: a clock that was
-- ahead may have set them. A live owner renews its lease.
-- Only here: the PostgreSQL store uses the clock of the server.
UPDATE hapax_idempotency_key SET lease_until = ?2
WHERE state = 'in_progress' AND lease_until > ?1
