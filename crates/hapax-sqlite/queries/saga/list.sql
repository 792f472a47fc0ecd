-- Lists sagas by id. The input is left out, because it can be long.
SELECT id, name, version, tenant, x'' AS input, headers, state, compensating, reason_code,
    reason_detail, deadline_at, epoch, wake_at, waiting_for, created_at, ended_at
FROM hapax_saga
WHERE (?1 IS NULL OR name = ?1)
  AND (?2 IS NULL OR state = ?2)
  AND (?3 IS NULL OR id > ?3)
  AND (?5 IS NULL OR version = ?5)
ORDER BY id
LIMIT ?4
