-- Deletes a refund that the provider has not made. Changes nothing if the refund is done.
DELETE FROM shop_refund
WHERE id = $1 AND tenant = $2 AND state = 'pending'
