-- By id alone; the caller compares the tenant or takes it.
SELECT tenant, amount, refunded, currency
FROM shop_charge
WHERE id = $1
