-- What there is to fetch, without fetching it.
SELECT size, width, height, length(content)
FROM shop_thumbnail
WHERE upload_id = ?1
ORDER BY size
