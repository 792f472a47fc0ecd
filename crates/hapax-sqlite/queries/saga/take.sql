-- Takes due sagas that have no owner, the longest due first, and raises their epochs.
UPDATE hapax_saga SET
    epoch = epoch + 1,
    lease_until = ?2
WHERE id IN (
    SELECT id
    FROM hapax_saga
    WHERE wake_at <= ?1
      AND lease_until <= ?1
      AND (name, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?3))
    ORDER BY wake_at
    LIMIT ?4
)
RETURNING id, name, version, tenant, input, headers, state, compensating, reason_code, reason_detail,
    deadline_at, epoch, wake_at, waiting_for, created_at, ended_at
