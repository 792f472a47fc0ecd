-- Deletes a key at an operator's request. The key is not deleted if its request is in progress, if
-- its row was written since the operator read it (?4 to ?6 are its epoch, its creation time and the
-- number of the transaction that wrote it), or if a saga that was started under it has not ended.
DELETE FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND state <> 'in_progress'
  AND epoch = ?4 AND created_at = ?5 AND coalesce(xid, 0) = ?6
  AND NOT EXISTS (
      SELECT 1
      FROM hapax_saga AS live
      WHERE live.key_tenant = ?1 AND live.key_operation = ?2 AND live.key = ?3
        AND live.ended_at IS NULL
  )
