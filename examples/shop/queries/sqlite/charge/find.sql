-- Finds the charge that an earlier run of a resumed payment wrote, by its provider key.
SELECT id, order_id, amount, currency, created_at
FROM shop_charge
WHERE provider_key = ?1 AND tenant = ?2
