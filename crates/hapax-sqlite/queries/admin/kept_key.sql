-- Reads why a key was not deleted: its version and state, and a saga that keeps it.
-- Only here: the PostgreSQL store uses the statement that shows a key, and another one for sagas.
SELECT epoch, created_at, coalesce(xid, 0) AS xid, state,
       (
           SELECT live.id
           FROM hapax_saga AS live
           WHERE live.key_tenant = ?1 AND live.key_operation = ?2 AND live.key = ?3
             AND live.ended_at IS NULL
           LIMIT 1
       ) AS live_saga
FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
