-- Selects from a JSON array of file hashes those that no upload refers to.
SELECT value
FROM json_each(?1)
WHERE NOT EXISTS (SELECT 1 FROM shop_upload WHERE sha256 = value)
