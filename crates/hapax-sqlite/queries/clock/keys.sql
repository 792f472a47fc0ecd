-- Has leases of keys that end later than ?1 end at ?2: they may be of a clock that was ahead. A living owner
-- renews its own.
-- Only here: the other store goes by the clock of its server.
UPDATE hapax_idempotency_key SET lease_until = ?2
WHERE state = 'in_progress' AND lease_until > ?1
