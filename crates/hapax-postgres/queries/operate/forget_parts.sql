-- Forgets how far a destination is and whose it is: its owners are fenced, and the outbox waits for
-- it no longer. The table itself keeps the last epoch of each.
-- Only here: the other store has one process, and nobody beside it who operates.
WITH leases AS (
    DELETE FROM hapax.lease WHERE part = ANY ($1::text[]) RETURNING 1
), checkpoints AS (
    DELETE FROM hapax.checkpoint_log WHERE part = ANY ($1::text[]) RETURNING 1
), parts AS (
    DELETE FROM hapax.destination WHERE name = ANY ($1::text[]) RETURNING 1
)
SELECT (SELECT count(*) FROM leases),
       (SELECT count(*) FROM checkpoints),
       (SELECT count(*) FROM parts)
