-- Writes an upload in the state pending, after its file was written to the disk. The thumbnail job
-- checks the content later.
INSERT INTO shop_upload
    (id, tenant, name, bytes, sha256, content_type, width, height, state, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'pending', $9)
