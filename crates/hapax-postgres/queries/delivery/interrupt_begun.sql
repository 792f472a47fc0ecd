-- Makes parked deliveries due again whose attempt was started and never settled, with that attempt
-- counted and logged; returns their number. A scheduled delivery has left its place in the order,
-- so its order key is removed, which it may have if it was parked in bulk. $4 is the other node
-- that owned the partition, if there was one.
WITH begun AS MATERIALIZED (
    SELECT destination, position, attempt, begun_at
    FROM hapax.delivery
    WHERE destination = $1::text AND begun_at IS NOT NULL
), interrupted AS (
    UPDATE hapax.delivery AS delivery SET
        state = 'retrying',
        next_at = $2::timestamptz,
        order_key = CASE WHEN delivery.state <> 'scheduled' THEN delivery.order_key END,
        begun_at = NULL,
        last_error = $3::text,
        changed_at = $2::timestamptz
    FROM begun
    WHERE delivery.destination = begun.destination AND delivery.position = begun.position
), logged AS (
    INSERT INTO hapax.attempt
        (destination, position, number, started_at, duration_ms, outcome, error, response_head,
         owner, owner_heartbeat)
    SELECT $1::text, position, attempt, begun_at, 0, 'interrupted', $3::text, '', $4::text,
           coalesce(pg_sequence_last_value('hapax.heartbeat_number'::regclass), 0)
    FROM begun
    ORDER BY position
    RETURNING 1
)
SELECT count(*)
FROM logged
