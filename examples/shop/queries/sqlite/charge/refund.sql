-- Changes nothing when the refunds would exceed the charge, whoever else refunds it now.
UPDATE shop_charge
SET refunded = refunded + ?3
WHERE id = ?1 AND tenant = ?2 AND refunded + ?3 <= amount
