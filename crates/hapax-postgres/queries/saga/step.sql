-- Writes the row of a step or of its compensation. A step that has started keeps its place in the
-- order.
INSERT INTO hapax.saga_step
    (saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts,
     next_at, began_at, ended_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bytea, $7::bytea, $8::text, $9::text,
        $10::int4, $11::timestamptz, $12::timestamptz, $13::timestamptz)
ON CONFLICT (saga, name, direction) DO UPDATE SET
    state = excluded.state,
    provider_key = excluded.provider_key,
    request = excluded.request,
    made = excluded.made,
    error_code = excluded.error_code,
    error_detail = excluded.error_detail,
    attempts = excluded.attempts,
    next_at = excluded.next_at,
    began_at = excluded.began_at,
    ended_at = excluded.ended_at
