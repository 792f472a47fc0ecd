-- Parks deliveries, or updates their rows after another attempt.
INSERT INTO hapax.delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
SELECT $1::text, position, state, attempt, next_at, order_key, last_error, $8::timestamptz
FROM unnest($2::int8[], $3::text[], $4::int4[], $5::timestamptz[], $6::text[], $7::text[])
     AS parked (position, state, attempt, next_at, order_key, last_error)
ON CONFLICT (destination, position) DO UPDATE SET
    state = excluded.state,
    attempt = excluded.attempt,
    next_at = excluded.next_at,
    order_key = excluded.order_key,
    last_error = excluded.last_error,
    begun_at = NULL,
    changed_at = excluded.changed_at
