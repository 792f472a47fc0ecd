-- Lists the thumbnails of an upload without their content.
SELECT size, width, height, length(content)
FROM shop_thumbnail
WHERE upload_id = $1
ORDER BY size
