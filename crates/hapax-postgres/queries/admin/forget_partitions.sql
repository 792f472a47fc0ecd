-- Deletes the checkpoints and leases of a destination: its owners are fenced, and the outbox no
-- longer waits for it. The table itself keeps the last epoch of each partition. Deletes where the
-- destination started, so that the next one of that name has another start.
-- Only here: the SQLite store deletes the rows of a partition by a statement per table.
WITH leases AS (
    DELETE FROM hapax.lease WHERE partition = ANY ($1::text[]) RETURNING 1
), checkpoints AS (
    DELETE FROM hapax.checkpoint_log WHERE partition = ANY ($1::text[]) RETURNING 1
), partitions AS (
    DELETE FROM hapax.destination WHERE name = ANY ($1::text[]) RETURNING 1
), starts AS (
    DELETE FROM hapax.start WHERE destination = ANY ($1::text[]) RETURNING 1
)
SELECT (SELECT count(*) FROM leases) AS leases,
       (SELECT count(*) FROM checkpoints) AS checkpoints,
       (SELECT count(*) FROM partitions) AS partitions,
       (SELECT count(*) FROM starts) AS starts
