-- Parks a delivery, or updates its row after another attempt.
INSERT INTO hapax_delivery
    (destination, position, state, attempt, next_at, order_key, last_error, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (destination, position) DO UPDATE SET
    state = excluded.state,
    attempt = excluded.attempt,
    next_at = excluded.next_at,
    order_key = excluded.order_key,
    last_error = excluded.last_error,
    begun_at = NULL,
    changed_at = excluded.changed_at
