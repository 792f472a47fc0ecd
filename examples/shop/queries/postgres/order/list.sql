-- Lists orders, one keyset page at a time. The last page is as fast as the first.
SELECT id, customer_id, amount, currency, note, version, created_at, updated_at
FROM shop_order
WHERE tenant = $1 AND id > $2
ORDER BY id
LIMIT $3
