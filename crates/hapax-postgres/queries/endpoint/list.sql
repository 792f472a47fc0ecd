-- Lists the endpoints after an id ($1), of one tenant ($2) or of all, in one state ($3) or in any, whose id
-- or description contains a text ($4) if there is one, at most $5.
-- No probe is due if nothing waits and all that has failed could not be sent by a probe since the last change.
SELECT id, tenant, url, description, types, filter, headers, sealed, previous_until, disabled_reason,
       disabled_at, failures, failing_since, slow_until, last_error,
       CASE WHEN probe_at IS NOT NULL AND NOT EXISTS (
           SELECT 1
           FROM hapax.endpoint_delivery AS waits
           WHERE waits.state = 'waiting' AND waits.endpoint = endpoint.id
       ) AND (
           SELECT min(failed.ended_at)
           FROM hapax.endpoint_delivery AS failed
           WHERE failed.state = 'failed' AND failed.endpoint = endpoint.id
       ) > greatest(disabled_at, changed_at) THEN NULL ELSE probe_at END AS probe_at,
       probes, created_at, created_by, changed_at, changed_by, version, payload_mode, mapping
FROM hapax.endpoint AS endpoint
WHERE id > $1::text
  AND deleted_at IS NULL
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR $3::text = CASE WHEN disabled_reason IS NOT NULL THEN 'disabled'
                                           WHEN slow_until IS NOT NULL THEN 'slowed'
                                           ELSE 'enabled' END)
  AND ($4::text IS NULL OR strpos(id, $4::text) > 0 OR strpos(description, $4::text) > 0)
ORDER BY id
LIMIT $5::int8
