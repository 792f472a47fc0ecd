-- Deletes a batch of events that were kept for a delivery when their segment was emptied and that
-- no delivery needs any more, with their deliveries and attempts. The retention of their segment is
-- over.
WITH done AS MATERIALIZED (
    SELECT id
    FROM hapax.outbox_event AS event
    WHERE segment = -1::int2
      AND NOT EXISTS (
          SELECT 1
          FROM hapax.delivery AS delivery
          WHERE delivery.position = event.id
            AND delivery.state IN ('scheduled', 'retrying', 'blocked', 'dead')
      )
    ORDER BY id
    LIMIT $1::int8
    FOR UPDATE OF event SKIP LOCKED
), attempts AS (
    DELETE FROM hapax.attempt AS attempt
    USING done
    WHERE attempt.position = done.id
    RETURNING 1
), deliveries AS (
    DELETE FROM hapax.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT ended.row
        FROM done
        CROSS JOIN hapax.position AS partition
        CROSS JOIN LATERAL (
            SELECT delivery.ctid AS row
            FROM hapax.delivery AS delivery
            WHERE delivery.destination = partition.partition
              AND delivery.position = done.id
              AND delivery.state IN ('delivered', 'discarded')
            OFFSET 0
        ) AS ended
    ))
    RETURNING 1
), events AS (
    DELETE FROM hapax.outbox_event AS event
    USING done
    WHERE event.id = done.id AND event.segment = -1::int2
    RETURNING 1
)
SELECT (SELECT count(*) FROM attempts)
     + (SELECT count(*) FROM deliveries)
     + (SELECT count(*) FROM events)
