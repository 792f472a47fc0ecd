-- Index of keys in progress, for lists and for owners that take over keys.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- The second condition is always true. Statements about one key do not have it, so the planner cannot
-- use this index for them. It would prefer it to the primary key while the index is small, and read all
-- keys in progress, with the dead versions of those that were.
DROP INDEX hapax.idempotency_key_lapses;
CREATE INDEX idempotency_key_lapses ON hapax.idempotency_key (lease_until)
    WHERE state = 'in_progress' AND on_expired <> '';
