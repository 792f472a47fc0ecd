-- Reads the endpoints that have changed after a version (?1), by version, at most ?2.
SELECT id, tenant, url, types, filter, sealed, previous_until, disabled_reason IS NULL AS is_enabled,
       deleted_at IS NOT NULL AS is_deleted, catch_up_at IS NOT NULL AS is_catching_up, version,
       payload_mode, mapping
FROM hapax_endpoint
WHERE version > ?1
ORDER BY version
LIMIT ?2
