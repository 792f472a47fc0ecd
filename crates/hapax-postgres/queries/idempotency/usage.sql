-- Counts what every tenant has stored: keys that stand, and the bytes that they hold. It reads the
-- whole table, and no large value: the length of one stands in its row.
SELECT tenant, count(*), sum(
    coalesce(octet_length(response_headers), 0)
    + coalesce(octet_length(response_body), 0)
    + coalesce(octet_length(request), 0)
)::int8
FROM hapax.idempotency_key
WHERE state = 'in_progress' OR state <> 'tombstone' AND expires_at > coalesce($1::timestamptz, clock_timestamp())
GROUP BY tenant
