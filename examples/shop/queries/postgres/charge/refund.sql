-- Adds a refund to the sum of the charge. Changes nothing if the refunds would exceed the charge.
-- The row is locked until the commit, so a concurrent refund waits and then sees the new sum.
UPDATE shop_charge
SET refunded = refunded + $3
WHERE id = $1 AND tenant = $2 AND refunded + $3 <= amount
