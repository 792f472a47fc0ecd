-- Locks the lease of a partition for its owner, before anything is written in its name. The lock is
-- in the row itself and leaves no dead row version. If another relay owns the partition, the
-- statement divides by zero, and the later statements of the pipeline fail.
-- It also divides by zero if the database was set back, even if the history has the same name.
-- First case: the events were read ($3, $4) in a history that is lost, although the lease may have
-- the same epoch. A frontier that is stored in this database is exempt, if the settlement does not
-- change it (it has no checkpoint, or $5 and $6 are as they are stored). Second case: the newest
-- checkpoint of the partition is neither the one that the owner knows ($7, $8, $9) nor that of this
-- settlement ($10). Third case: a sequence is below what was read or written.
SELECT 1 / coalesce((
    SELECT (epoch = $2::int8)::int4
    FROM hapax.lease
    WHERE partition = $1::text
    FOR NO KEY UPDATE
), 0) / (
    SELECT (count(*) = 0)::int4
    FROM (SELECT hapax.history() AS name OFFSET 0) AS history
    CROSS JOIN unnest($3::int8[], $4::text[]) AS read (high, snapshot)
    WHERE NOT CASE WHEN hapax.is_read_in(history.name, read.snapshot) THEN true ELSE EXISTS (
        SELECT 1
        FROM hapax.position AS stands
        WHERE stands.partition = $1::text
          AND stands.frontier = read.high
          AND stands.snapshot = read.snapshot
          AND ($5::text IS NULL OR (stands.settled = $5::text AND stands.offered = $6::text))
    ) END
) / CASE WHEN $7::int8 IS NULL THEN 1 ELSE coalesce((
    SELECT (checkpoint_number <= counted.last
            AND (checkpoint_epoch = $7::int8 AND checkpoint_settlement = $8::int8
                     AND frontier = $9::int8
                 OR checkpoint_epoch = $2::int8 AND checkpoint_settlement = $10::int8))::int4
    FROM hapax.position
    CROSS JOIN (
        SELECT last_value - (NOT is_called)::int4 AS last FROM hapax.checkpoint_number
    ) AS counted
    WHERE partition = $1::text
), 0) / (
    SELECT (coalesce(max(read.high), 0) <= drawn.last)::int4
    FROM (SELECT last_value - (NOT is_called)::int4 AS last FROM hapax.outbox_event_id) AS drawn
    LEFT JOIN unnest($3::int8[]) AS read (high) ON true
    GROUP BY drawn.last
) END
