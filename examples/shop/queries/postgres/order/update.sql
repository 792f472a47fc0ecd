-- Changes nothing when the version moved on, also between the read and this write: the row is locked
-- until the commit, and whoever waited for it judges the version that the other one left.
UPDATE shop_order
SET customer_id = $4, amount = $5, currency = $6, note = $7, version = version + 1, updated_at = $8
WHERE tenant = $1 AND id = $2 AND version = $3
