-- Makes deliveries of an endpoint (?2) of a tenant (?1) due that have failed at a time (?3) or later and before
-- another (?6), at most ?4, as if they had not been tried: those that were dropped, which have the error in
-- ?8, those that were not, or both (?7). Each replay takes another number, so a settlement of an
-- attempt that began before it changes nothing.
UPDATE hapax_endpoint_delivery
SET state = 'waiting', attempt = attempt + 1, counted_from = attempt + 1, next_at = ?5, ended_at = NULL
WHERE id IN (
    SELECT id
    FROM hapax_endpoint_delivery
    WHERE tenant = ?1
      AND endpoint = ?2
      AND state = 'failed'
      AND ended_at >= ?3
      AND (?6 IS NULL OR ended_at < ?6)
      AND (?7 IS NULL OR ?7 = coalesce(last_error = ?8, 0))
    ORDER BY ended_at, id
    LIMIT ?4
)
