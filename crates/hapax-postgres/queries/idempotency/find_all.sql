-- Reads the rows of these keys, to evaluate the claims of those that were not free: see find.
-- Only here: the SQLite store reads each key where it writes it.
SELECT fingerprint, state, epoch, lease_until, response_status, response_headers, response_body,
       created_at,
       CASE
           WHEN expires_at > at OR state IN ('tombstone', 'in_progress') THEN expires_at
           ELSE hapax.effective_expiry(tenant, operation, key, expires_at, at)
       END AS expires_at,
       at, tenant, operation, key
FROM (SELECT coalesce($4::timestamptz, clock_timestamp()) AS at) AS clock, hapax.idempotency_key
JOIN (SELECT unnest($1::text[]) AS tenant, unnest($2::text[]) AS operation,
             unnest($3::text[]) AS key) AS wanted
     USING (tenant, operation, key)
