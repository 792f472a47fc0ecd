-- Reads a charge by id alone. The transaction is the only writer, so the charge needs no lock.
SELECT tenant, amount, currency
FROM shop_charge
WHERE id = ?1
