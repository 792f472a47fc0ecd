-- Parks events whose first attempt was interrupted, due at once, with that attempt counted and
-- logged; returns their number. They block their order keys, so that no later event overtakes them.
-- The key has the format of hapax::event::Event::order_key. $6 is the other node that owned the
-- partition, if there was one.
WITH parked AS (
    INSERT INTO hapax.delivery
        (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
    SELECT $1::text, event.id, 'retrying', 1, $3::timestamptz,
           event.aggregate_type || E'\n' || event.aggregate_id, $4::text, $3::timestamptz
    FROM unnest($2::int8[]) AS offered (position)
    JOIN hapax.outbox_event AS event ON event.id = offered.position
        AND event.segment IN ((offered.position >> 36 & 7)::int2, -1::int2)
    ON CONFLICT (destination, position) DO NOTHING
    RETURNING position
), logged AS (
    INSERT INTO hapax.attempt
        (destination, position, number, started_at, duration_ms, outcome, error, response_head,
         owner, owner_heartbeat)
    SELECT $1::text, position, 1, $5::timestamptz, 0, 'interrupted', $4::text, '', $6::text,
           coalesce(pg_sequence_last_value('hapax.heartbeat_number'::regclass), 0)
    FROM parked
    ORDER BY position
    RETURNING 1
)
SELECT count(*)
FROM logged
