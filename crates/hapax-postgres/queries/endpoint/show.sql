-- Reads an endpoint ($2) of a tenant ($1).
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
WHERE tenant = $1::text AND id = $2::text AND deleted_at IS NULL
