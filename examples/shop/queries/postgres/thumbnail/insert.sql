-- Once for each upload and size, whoever comes again.
INSERT INTO shop_thumbnail (upload_id, size, width, height, sha256, content)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (upload_id, size) DO NOTHING
