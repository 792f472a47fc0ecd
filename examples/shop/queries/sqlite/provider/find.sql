-- What was charged under a key.
SELECT id, amount, currency, created_at
FROM shop_provider_charge
WHERE key = ?1
