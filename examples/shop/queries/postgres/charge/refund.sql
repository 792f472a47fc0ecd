-- Changes nothing when the refunds would exceed the charge. The row is locked until the commit, and
-- whoever waited for it sees the sum that the other one left.
UPDATE shop_charge
SET refunded = refunded + $3
WHERE id = $1 AND tenant = $2 AND refunded + $3 <= amount
