-- Gives back what a refund had reserved that did not come about.
UPDATE shop_charge
SET refunded = refunded - ?3
WHERE id = ?1 AND tenant = ?2
