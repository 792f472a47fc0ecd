-- Deletes a batch ($1) of attempts, arrivals and finished deliveries whose events were deleted with
-- their segment, one rotation at a time. A rotation of which nothing is left is deleted too. Events
-- that were kept keep their attempts.
-- Only here: the SQLite store deletes them with the event.
WITH rotation AS MATERIALIZED (
    SELECT rotation, rotation << 36 AS first, rotation + 1 << 36 AS last
    FROM hapax.rotation
    WHERE emptied_at IS NOT NULL
    ORDER BY rotation
    LIMIT 1
), attempts AS (
    DELETE FROM hapax.attempt
    WHERE ctid = ANY (ARRAY(
        SELECT attempt.ctid
        FROM rotation
        CROSS JOIN LATERAL (
            SELECT attempt.ctid
            FROM hapax.attempt AS attempt
            WHERE attempt.position BETWEEN rotation.first AND rotation.last
              AND NOT EXISTS (
                  SELECT 1
                  FROM hapax.outbox_event_kept AS kept
                  WHERE kept.id = attempt.position
              )
            ORDER BY attempt.position
            LIMIT $1::int8
        ) AS attempt
    ))
    RETURNING 1
), arrivals AS (
    DELETE FROM hapax.arrival
    WHERE ctid = ANY (ARRAY(
        SELECT arrival.ctid
        FROM rotation
        CROSS JOIN LATERAL (
            SELECT arrival.ctid
            FROM hapax.arrival AS arrival
            WHERE arrival.first BETWEEN rotation.first AND rotation.last
            ORDER BY arrival.first
            LIMIT $1::int8
        ) AS arrival
    ))
    RETURNING 1
), deliveries AS (
    DELETE FROM hapax.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT ended.ctid
        FROM rotation
        CROSS JOIN hapax.position AS partition
        CROSS JOIN LATERAL (
            SELECT delivery.ctid
            FROM hapax.delivery AS delivery
            WHERE delivery.destination = partition.partition
              AND delivery.position BETWEEN rotation.first AND rotation.last
              AND delivery.state IN ('delivered', 'discarded')
            ORDER BY delivery.position
            LIMIT $1::int8
        ) AS ended
    ))
    RETURNING 1
), forgotten AS (
    DELETE FROM hapax.rotation
    WHERE rotation = (SELECT rotation FROM rotation)
      AND NOT EXISTS (SELECT 1 FROM attempts)
      AND NOT EXISTS (SELECT 1 FROM arrivals)
      AND NOT EXISTS (SELECT 1 FROM deliveries)
    RETURNING 1
)
SELECT (SELECT count(*) FROM attempts)
     + (SELECT count(*) FROM arrivals)
     + (SELECT count(*) FROM deliveries)
     + (SELECT count(*) FROM forgotten)
