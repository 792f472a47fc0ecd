-- Releases the stock that a checkout reserved and did not ship.
UPDATE shop_stock SET reserved = reserved - ?2
WHERE sku = ?1
