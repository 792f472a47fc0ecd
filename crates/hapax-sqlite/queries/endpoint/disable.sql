-- Disables an endpoint (?1) with a reason (?2) that is enabled and at a version (?6), to another version
-- (?3). It is probed after ?7 milliseconds, unless that is null. Returns its tenant.
UPDATE hapax_endpoint
SET disabled_reason = ?2,
    disabled_at = ?5,
    probe_at = ?5 + ?7,
    probes = 0,
    catch_up_at = NULL,
    changed_at = ?5,
    changed_by = ?4,
    version = ?3
WHERE id = ?1 AND version = ?6 AND disabled_reason IS NULL AND deleted_at IS NULL
RETURNING tenant
