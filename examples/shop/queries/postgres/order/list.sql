-- A keyset page: as quick at the end of the table as at its beginning.
SELECT id, customer_id, amount, currency, note, version, created_at, updated_at
FROM shop_order
WHERE tenant = $1 AND id > $2
ORDER BY id
LIMIT $3
