-- The file is on the disk by now; what it is worth is found out later.
INSERT INTO shop_upload
    (id, tenant, name, bytes, sha256, content_type, width, height, state, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9)
