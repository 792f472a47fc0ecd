-- Reads sagas of one state and tenant (?3) by id, like sagas. It reads no sagas of other tenants: the
-- page tells at which id the search ended, and an id is a name that another tenant may have chosen.
-- Only here: the PostgreSQL store has both in a branch of one statement.
SELECT id, name, version, tenant, x'' AS input, headers, state, compensating, reason_code,
    reason_detail, deadline_at, epoch, lease_until, wake_at, waiting_for, created_at, ended_at
FROM hapax_saga INDEXED BY hapax_saga_tenant
WHERE tenant = ?3 AND state = ?1 AND id > ?2
ORDER BY id
