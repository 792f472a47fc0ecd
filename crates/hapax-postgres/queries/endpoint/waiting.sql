-- Lists the deliveries that wait for an endpoint ($2) of a tenant ($1), those that are due first, at most
-- $3.
SELECT event_id::text AS event_id, type, attempt, next_at, created_at, last_error
FROM hapax.endpoint_delivery
WHERE tenant = $1::text AND endpoint = $2::text AND state = 'waiting'
ORDER BY next_at, id
LIMIT $3::int8
