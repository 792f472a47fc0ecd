-- Reads the rows that hold these keys, to tell those that were not free what is known about them.
-- Only here: the embedded store reads each key where it writes it.
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at, expires_at, coalesce($4::timestamptz, clock_timestamp()),
       tenant, operation, key
FROM hapax.idempotency_key
JOIN (SELECT unnest($1::text[]) AS tenant, unnest($2::text[]) AS operation,
             unnest($3::text[]) AS key) AS wanted
     USING (tenant, operation, key)
