-- Adds a refund to the sum of the charge. Changes nothing if the refunds, including concurrent
-- ones, would exceed the charge.
UPDATE shop_charge
SET refunded = refunded + ?3
WHERE id = ?1 AND tenant = ?2 AND refunded + ?3 <= amount
