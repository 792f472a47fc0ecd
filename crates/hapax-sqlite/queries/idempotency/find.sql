-- Reads the row of a key with the unique index. While a saga that was started under an expired key
-- has not ended, every read extends the key's expiry by a minute (?5).
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at,
       CASE
           WHEN expires_at <= ?4 AND state IN ('completed', 'failed') AND EXISTS (
               SELECT 1
               FROM hapax_saga AS live
               WHERE live.key_tenant = ?1 AND live.key_operation = ?2 AND live.key = ?3
                 AND live.ended_at IS NULL
           ) THEN ?4 + ?5
           ELSE expires_at
       END AS expires_at
FROM hapax_idempotency_key
WHERE tenant = ?1 AND operation = ?2 AND key = ?3
