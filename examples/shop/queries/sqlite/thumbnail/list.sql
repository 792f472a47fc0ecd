-- Lists the thumbnails of an upload without their content.
SELECT size, width, height, length(content) AS bytes
FROM shop_thumbnail
WHERE upload_id = ?1
ORDER BY size
