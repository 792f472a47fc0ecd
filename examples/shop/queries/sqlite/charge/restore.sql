-- Subtracts the amount that a failed refund had reserved from the refunded sum of the charge.
UPDATE shop_charge
SET refunded = refunded - ?3
WHERE id = ?1 AND tenant = ?2
