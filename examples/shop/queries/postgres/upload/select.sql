-- Selects an upload of this tenant. An upload of another tenant is not found.
SELECT id, name, bytes, sha256, content_type, width, height, state, reason, created_at
FROM shop_upload
WHERE tenant = $1 AND id = $2
