-- The provider has refunded; changes nothing the second time.
UPDATE shop_refund
SET state = 'done', provider_ref = $3
WHERE id = $1 AND tenant = $2 AND state = 'pending'
