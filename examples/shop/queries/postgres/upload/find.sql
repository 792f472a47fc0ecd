-- What the job needs to know; it acts for every tenant.
SELECT sha256, content_type, state
FROM shop_upload
WHERE id = $1
