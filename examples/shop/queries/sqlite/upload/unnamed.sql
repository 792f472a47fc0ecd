-- Of these files, a JSON array of hashes, those that no upload names.
SELECT value
FROM json_each(?1)
WHERE NOT EXISTS (SELECT 1 FROM shop_upload WHERE sha256 = value)
