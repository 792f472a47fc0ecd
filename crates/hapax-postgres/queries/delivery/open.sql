-- Raises the epoch, which fences the previous owner. No node owns the partition then: opening it
-- this way does not send heartbeats.
INSERT INTO hapax.lease AS old (partition, epoch, node, taken_at)
VALUES ($1::text, 1, NULL, coalesce($2::timestamptz, clock_timestamp()))
ON CONFLICT (partition) DO UPDATE SET
    epoch = old.epoch + 1,
    node = NULL,
    taken_at = excluded.taken_at
RETURNING epoch
