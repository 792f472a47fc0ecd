-- Reads a key with its response. It returns two keys if more than one tenant or operation matches.
SELECT tenant, operation, key, state, epoch, lease_until, recovery_point, response_status,
       octet_length(response_body) AS body_bytes, created_at, completed_at, expires_at, resource_id,
       lower(hex(fingerprint)) AS fingerprint, on_expired, octet_length(request) AS request_bytes,
       response_headers, response_body, coalesce(xid, 0) AS xid
FROM hapax_idempotency_key
WHERE key = ?1
  AND (?2 IS NULL OR operation = ?2)
  AND (?3 IS NULL OR tenant = ?3)
ORDER BY operation, tenant
LIMIT 2
