-- Selects the address of a customer of this tenant.
SELECT email
FROM shop_customer
WHERE tenant = ?1 AND id = ?2
