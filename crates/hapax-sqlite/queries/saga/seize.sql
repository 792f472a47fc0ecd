-- Takes one saga, even if it is owned.
UPDATE hapax_saga SET
    epoch = epoch + 1,
    lease_until = ?2
WHERE id = ?1
RETURNING id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
    deadline_at, epoch, wake_at, waiting_for, created_at, ended_at
