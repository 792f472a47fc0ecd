-- Settles a claimed delivery (?1, ?2) if it is still at the attempt (?3) that is settled. ?8 says whether
-- the attempt does not count for the schedule; it takes another number then, so that it is settled once. Returns
-- the tenant and the type of its event.
UPDATE hapax_endpoint_delivery
SET state = ?4,
    next_at = ?7 + ?5,
    ended_at = CASE WHEN ?4 <> 'waiting' THEN ?7 END,
    last_error = ?6,
    attempt = attempt + ?8,
    counted_from = counted_from + CASE WHEN ?8 THEN 2 ELSE 0 END
WHERE endpoint = ?1 AND event_id = ?2 AND attempt = ?3 AND state = 'waiting'
RETURNING tenant, type
