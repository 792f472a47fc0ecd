-- Lists the entries of the audit log, the newest first.
SELECT id, at, actor, tenant, action, object, detail, outcome
FROM hapax_audit_log
WHERE id < ?1
  AND (?2 IS NULL OR tenant = ?2)
  AND (?3 IS NULL OR actor = ?3)
  AND (?4 IS NULL OR action = ?4)
  AND (?5 IS NULL OR object = ?5)
ORDER BY id DESC
LIMIT ?6
