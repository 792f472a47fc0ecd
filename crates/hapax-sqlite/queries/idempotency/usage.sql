-- Counts the keys that each tenant has stored, and the bytes that they use.
SELECT tenant, count(*) AS keys, sum(
    coalesce(length(response_headers), 0)
    + coalesce(length(response_body), 0)
    + coalesce(length(request), 0)
) AS bytes
FROM hapax_idempotency_key
WHERE state = 'in_progress' OR state <> 'tombstone' AND expires_at > ?1
GROUP BY tenant
