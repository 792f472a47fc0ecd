-- Counts the keys that each tenant has stored, and the bytes that they use. It reads the whole
-- table, but no large values, because their lengths are in the rows.
SELECT tenant, count(*) AS keys, sum(
    coalesce(octet_length(response_headers), 0)
    + coalesce(octet_length(response_body), 0)
    + coalesce(octet_length(request), 0)
    + coalesce(pg_column_size(recovery_data), 0)
)::int8 AS bytes
FROM hapax.idempotency_key
WHERE state = 'in_progress' OR state <> 'tombstone' AND expires_at > coalesce($1::timestamptz, clock_timestamp())
GROUP BY tenant
