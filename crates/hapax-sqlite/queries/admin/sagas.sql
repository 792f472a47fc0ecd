-- Reads sagas of one state by id, like saga/list, after an id (?2). The caller merges the states and
-- stops after a number of sagas.
SELECT id, name, version, tenant, x'' AS input, headers, state, compensating, reason_code,
    reason_detail, deadline_at, epoch, lease_until, wake_at, waiting_for, created_at, ended_at
FROM hapax_saga INDEXED BY hapax_saga_state
WHERE state = ?1 AND id > ?2
ORDER BY id
