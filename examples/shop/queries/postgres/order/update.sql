-- Updates an order. Changes nothing if its version has changed, even between the read and this
-- write: the row is locked until the commit, and a concurrent writer waits and then compares the
-- new version.
UPDATE shop_order
SET customer_id = $4, amount = $5, currency = $6, note = $7, version = version + 1, updated_at = $8
WHERE tenant = $1 AND id = $2 AND version = $3
