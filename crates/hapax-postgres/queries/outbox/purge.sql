-- Deletes a batch of old events that nobody needs, with their deliveries and attempts: every known
-- destination has passed them, and no delivery waits for them. Passed means read: an event at or
-- below a frontier was, if the frontier's snapshot (the first word) shows it, or if nothing can
-- come below that id any more (the second word). Without a destination nothing is passed. Ids and
-- ages rise together, so the oldest ids are looked at.
WITH passed AS MATERIALIZED (
    SELECT id, created_at
    FROM hapax.outbox_event AS event
    WHERE id <= (SELECT min(frontier) FROM hapax.checkpoint)
      AND NOT EXISTS (
          SELECT 1
          FROM hapax.checkpoint
          WHERE snapshot IS NOT NULL
            AND event.id > split_part(snapshot, ' ', 2)::int8
            AND NOT pg_visible_in_snapshot(event.xid, split_part(snapshot, ' ', 1)::pg_snapshot)
      )
      AND NOT EXISTS (
          SELECT 1
          FROM hapax.delivery AS delivery
          WHERE delivery.position = event.id
            AND delivery.state IN ('scheduled', 'retrying', 'blocked', 'dead')
      )
    ORDER BY id
    LIMIT $2::int8
    FOR UPDATE OF event SKIP LOCKED
), old AS MATERIALIZED (
    SELECT id
    FROM passed
    WHERE created_at <= $1::timestamptz
), attempts AS (
    DELETE FROM hapax.attempt AS attempt
    USING old
    WHERE attempt.position = old.id
    RETURNING 1
), deliveries AS (
    DELETE FROM hapax.delivery
    WHERE ctid = ANY (ARRAY(
        SELECT ended.row
        FROM old
        CROSS JOIN hapax.destination AS destination
        CROSS JOIN LATERAL (
            SELECT delivery.ctid AS row
            FROM hapax.delivery AS delivery
            WHERE delivery.destination = destination.name
              AND delivery.position = old.id
              AND delivery.state IN ('delivered', 'discarded')
            OFFSET 0
        ) AS ended
    ))
    RETURNING 1
), events AS (
    DELETE FROM hapax.outbox_event AS event
    USING old
    WHERE event.id = old.id
    RETURNING 1
)
SELECT (SELECT count(*) FROM attempts)
     + (SELECT count(*) FROM deliveries)
     + (SELECT count(*) FROM events)
