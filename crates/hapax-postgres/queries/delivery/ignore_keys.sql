-- Makes the blocked deliveries due now ($5) among the next $4 parked ones of a partition after a
-- position ($3), and removes their order keys, for a destination that no longer keeps order. Works
-- for the owner only. Returns the last position that was visited.
WITH own AS MATERIALIZED (
    SELECT partition
    FROM hapax.lease
    WHERE partition = $1::text AND epoch = $2::int8
    FOR NO KEY UPDATE
), looked AS MATERIALIZED (
    SELECT delivery.position, delivery.state
    FROM hapax.delivery AS delivery
    CROSS JOIN own
    WHERE delivery.destination = $1::text
      AND delivery.state IN ('scheduled', 'retrying', 'blocked')
      AND delivery.position > $3::int8
    ORDER BY delivery.position
    LIMIT $4::int8
), freed AS (
    UPDATE hapax.delivery AS delivery SET
        state = 'retrying',
        next_at = $5::timestamptz,
        order_key = NULL,
        changed_at = $5::timestamptz
    FROM looked
    WHERE delivery.destination = $1::text
      AND delivery.position = looked.position
      AND looked.state = 'blocked'
      AND delivery.state = 'blocked'
)
SELECT max(position)
FROM looked
