-- A refund that did not come about; changes nothing when it did.
DELETE FROM shop_refund
WHERE id = $1 AND tenant = $2 AND state = 'pending'
