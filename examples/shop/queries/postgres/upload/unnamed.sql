-- Selects from a JSON array of file hashes those that no upload refers to.
SELECT listed.value
FROM json_array_elements_text($1::text::json) AS listed (value)
WHERE NOT EXISTS (SELECT 1 FROM shop_upload WHERE sha256 = listed.value)
