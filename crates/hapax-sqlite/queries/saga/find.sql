-- Reads the row of a saga.
SELECT id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
    deadline_at, epoch, lease_until, wake_at, waiting_for, created_at, ended_at
FROM hapax_saga
WHERE id = ?1
