-- Claims a delivery (?1) at a time (?3). It is due again at another one (?2). A probe may claim one that has
-- failed, which has all of its attempts again.
-- Only here: the PostgreSQL store finds and claims deliveries in one statement.
UPDATE hapax_endpoint_delivery
SET state = 'waiting',
    counted_from = CASE WHEN state = 'failed' THEN attempt ELSE counted_from END,
    attempt = attempt + 1,
    next_at = ?2,
    tried_at = ?3,
    ended_at = NULL
WHERE id = ?1
RETURNING endpoint, tenant, position AS id, event_id, type, aggregate_type, aggregate_id, sequence,
          payload, headers, event_created_at AS created_at, NULL AS available_at, attempt,
          counted_from
