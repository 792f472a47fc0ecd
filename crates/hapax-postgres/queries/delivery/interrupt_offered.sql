-- Parks events whose first attempt was cut off, due at once with that attempt counted and logged;
-- says how many. They hold their order keys up: what comes behind them must not overtake them. The
-- key is spelled as hapax::event::Event::order_key spells it.
WITH parked AS (
    INSERT INTO hapax.delivery
        (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
    SELECT $1::text, id, 'retrying', 1, $3::timestamptz,
           aggregate_type || E'\n' || aggregate_id, $4::text, $3::timestamptz
    FROM hapax.outbox_event
    WHERE id = ANY ($2::int8[])
    ON CONFLICT (destination, position) DO NOTHING
    RETURNING position
), logged AS (
    INSERT INTO hapax.attempt
        (destination, position, number, started_at, duration_ms, outcome, error, response_head)
    SELECT $1::text, position, 1, $5::timestamptz, 0, 'interrupted', $4::text, ''
    FROM parked
    ORDER BY position
    RETURNING 1
)
SELECT count(*)
FROM logged
