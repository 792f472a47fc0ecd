-- Another tenant's order is not there.
SELECT id, customer_id, amount, currency, note, version, created_at, updated_at
FROM shop_order
WHERE tenant = $1 AND id = $2
