-- Selects the content of one thumbnail. The caller has checked the tenant of the upload.
SELECT sha256, content
FROM shop_thumbnail
WHERE upload_id = $1 AND size = $2
