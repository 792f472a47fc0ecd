-- Makes events due again: those that match a filter among the next $10 events after an id ($9) and
-- before another ($8), at most $11, for the partition of a destination ($12, with $13 partitions)
-- that delivers each of them. Events that a partition has not read yet are delivered anyway, and
-- parked ones are already due. A dead letter is replayed in its place, and all others are
-- scheduled, without an order. Returns the number of events and the last id that was visited.
WITH looked AS MATERIALIZED (
    SELECT id, shard, xid
    FROM (
        SELECT id, shard, xid, event_id, type, tenant, aggregate_type, aggregate_id, created_at
        FROM hapax.outbox_event
        WHERE id > $9::int8 AND id < $8::int8
        ORDER BY id
        LIMIT $10::int8
    ) AS ahead
    WHERE true
  AND ($1::text IS NULL OR type LIKE $1::text)
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR aggregate_type = $3::text)
  AND ($4::text IS NULL OR aggregate_id = $4::text)
  AND ($5::text IS NULL OR event_id = $5::text::uuid)
  AND ($6::timestamptz IS NULL OR created_at >= $6::timestamptz)
  AND ($7::timestamptz IS NULL OR created_at < $7::timestamptz)
    ORDER BY id
    LIMIT $11::int8
), chosen AS (
    SELECT looked.id, position.partition
    FROM looked
    JOIN hapax.position AS position
        ON position.partition = CASE WHEN $13::int8 = 1 THEN $12::text
                                ELSE $12::text || '/' || looked.shard % $13::int8 END
    WHERE hapax.positions(position.settled) @> looked.id
       OR (looked.id <= position.frontier AND (
            position.snapshot IS NULL
            OR looked.id <= split_part(position.snapshot, ' ', 2)::int8
            OR pg_visible_in_snapshot(
                looked.xid, split_part(position.snapshot, ' ', 1)::pg_snapshot)))
), offered AS (
    INSERT INTO hapax.delivery AS old
        (destination, position, state, attempt, next_at, changed_at, manual)
    SELECT partition, id, 'scheduled', 0, $14::timestamptz, $14::timestamptz, true
    FROM chosen
    ORDER BY partition, id
    ON CONFLICT (destination, position) DO UPDATE SET
        state = CASE WHEN old.state = 'dead' THEN 'retrying' ELSE 'scheduled' END,
        order_key = CASE WHEN old.state = 'dead' THEN old.order_key END,
        attempt = 0,
        next_at = excluded.next_at,
        begun_at = NULL,
        reason = NULL,
        changed_at = excluded.changed_at,
        manual = true
    WHERE old.state IN ('dead', 'delivered', 'discarded')
    RETURNING 1
)
SELECT (SELECT count(*) FROM offered) AS offered,
       (SELECT count(*) FROM looked) AS looked,
       (SELECT max(id) FROM looked) AS last_looked,
       (SELECT id
        FROM hapax.outbox_event
        WHERE id > $9::int8 AND id < $8::int8
        ORDER BY id
        OFFSET $10::int8 - 1
        LIMIT 1) AS last_ahead
