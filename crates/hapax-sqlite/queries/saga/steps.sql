-- Reads the steps of a saga in the order in which they started.
SELECT name, direction, state, provider_key, request, made, error_code, error_detail, attempts, next_at,
    began_at, ended_at
FROM hapax_saga_step
WHERE saga = ?1
ORDER BY rowid
