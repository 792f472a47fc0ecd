-- Lists the entries of the audit log, the newest first.
SELECT id, at, actor, tenant, action, object, detail, outcome
FROM hapax.audit_log
WHERE id < $1::int8
  AND ($2::text IS NULL OR tenant = $2::text)
  AND ($3::text IS NULL OR actor = $3::text)
  AND ($4::text IS NULL OR action = $4::text)
  AND ($5::text IS NULL OR object = $5::text)
ORDER BY id DESC
LIMIT $6::int8
