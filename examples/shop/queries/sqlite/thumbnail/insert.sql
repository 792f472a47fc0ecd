-- Writes one thumbnail per upload and size. If the job runs again, it changes nothing.
INSERT INTO shop_thumbnail (upload_id, size, width, height, sha256, content)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (upload_id, size) DO NOTHING
