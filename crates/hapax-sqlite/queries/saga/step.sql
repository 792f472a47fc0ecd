-- Writes the row of a step or of its compensation. A step that has started keeps its place in the
-- order.
INSERT INTO hapax_saga_step
    (saga, name, direction, state, provider_key, request, made, error_code, error_detail, attempts,
     next_at, began_at, ended_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
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
