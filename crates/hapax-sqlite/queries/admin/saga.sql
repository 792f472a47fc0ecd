-- Reads a saga as it is listed. The input is left out, because it can be long.
-- Only here: the PostgreSQL store reads the listed sagas in the statement that finds them.
SELECT id, name, version, tenant, x'' AS input, headers, state, compensating, reason_code,
    reason_detail, deadline_at, epoch, lease_until, wake_at, waiting_for, created_at, ended_at
FROM hapax_saga
WHERE id = ?1
