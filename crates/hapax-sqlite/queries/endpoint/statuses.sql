-- Lists the endpoints after an id (?1), of one tenant (?2) or of all, in one state (?3) or in any, whose id
-- or description contains a text (?4) if there is one, at most ?5. endpoint/health is read for each.
-- No probe is due if nothing waits and all that has failed could not be sent by a probe since the last change.
SELECT id, tenant, url, description, disabled_reason, failures, last_error,
       CASE WHEN probe_at IS NOT NULL AND NOT EXISTS (
           SELECT 1
           FROM hapax_endpoint_delivery AS waits
           WHERE waits.state = 'waiting' AND waits.endpoint = endpoint.id
       ) AND (
           SELECT min(failed.ended_at)
           FROM hapax_endpoint_delivery AS failed
           WHERE failed.state = 'failed' AND failed.endpoint = endpoint.id
       ) > max(disabled_at, changed_at) THEN NULL ELSE probe_at END AS probe_at,
       slow_until IS NOT NULL AND disabled_reason IS NULL AS is_slowed
FROM hapax_endpoint AS endpoint
WHERE id > ?1
  AND deleted_at IS NULL
  AND (?2 IS NULL OR tenant = ?2)
  AND (?3 IS NULL OR ?3 = CASE WHEN disabled_reason IS NOT NULL THEN 'disabled'
                               WHEN slow_until IS NOT NULL THEN 'slowed'
                               ELSE 'enabled' END)
  AND (?4 IS NULL OR instr(id, ?4) > 0 OR instr(description, ?4) > 0)
ORDER BY id
LIMIT ?5
