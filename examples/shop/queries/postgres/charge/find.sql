-- What a resumed payment wrote before, by the key that the provider knows it by.
SELECT id, order_id, amount, currency, created_at
FROM shop_charge
WHERE provider_key = $1 AND tenant = $2
