-- Selects a charge by id alone. The caller compares the tenant, or uses the tenant of the row.
SELECT tenant, amount, refunded, currency
FROM shop_charge
WHERE id = $1
