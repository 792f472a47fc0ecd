-- Raises the epoch for a node, unless another live node owns the partition: its last sign within
-- the lease ($3, in milliseconds) does not say that it ends, or it took the partition within the
-- lease. In that case the statement divides by zero, and the later statements of the pipeline fail.
-- All times are of one clock. Times in the future are ignored, because the clock was set back
-- since.
WITH now AS MATERIALIZED (
    SELECT at, at - $3::int8 * interval '1 millisecond' AS since,
           at + $3::int8 * interval '1 millisecond' AS until
    FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS at OFFSET 0) AS clock
), taken AS (
    INSERT INTO hapax.lease AS old (partition, epoch, node, taken_at)
    SELECT $1::text, 1, $2::text, at
    FROM now
    ON CONFLICT (partition) DO UPDATE SET
        epoch = old.epoch + 1,
        node = excluded.node,
        taken_at = excluded.taken_at
    WHERE old.node IS NULL
       OR old.node = excluded.node
       OR NOT (
           old.taken_at > (SELECT since FROM now) AND old.taken_at < (SELECT until FROM now)
           OR coalesce((
               SELECT heartbeat.is_alive
               FROM hapax.heartbeat AS heartbeat
               WHERE heartbeat.node = old.node
                 AND heartbeat.seen_at > (SELECT since FROM now)
                 AND heartbeat.seen_at < (SELECT until FROM now)
               ORDER BY heartbeat.number DESC
               LIMIT 1
           ), false)
       )
    RETURNING epoch
)
SELECT coalesce(max(epoch), 0) / count(*)
FROM taken
