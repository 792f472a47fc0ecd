-- One thumbnail; its upload has said whose it is.
SELECT sha256, content
FROM shop_thumbnail
WHERE upload_id = ?1 AND size = ?2
