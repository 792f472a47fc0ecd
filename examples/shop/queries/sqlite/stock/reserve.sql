-- Reserves stock if enough of it is left. Two concurrent checkouts cannot both reserve the last
-- piece.
UPDATE shop_stock SET reserved = reserved + ?2
WHERE sku = ?1 AND total - reserved >= ?2
