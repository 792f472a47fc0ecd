-- Selects an order of this tenant. An order of another tenant is not found.
SELECT id, customer_id, amount, currency, note, version, created_at, updated_at
FROM shop_order
WHERE tenant = ?1 AND id = ?2
