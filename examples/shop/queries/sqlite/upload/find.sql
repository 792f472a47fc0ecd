-- Selects the columns that the thumbnail job needs. The job runs for all tenants.
SELECT sha256, content_type, state
FROM shop_upload
WHERE id = ?1
