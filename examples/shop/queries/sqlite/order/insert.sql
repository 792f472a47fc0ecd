-- Writes an order. The operation is single-shot: the response is built before, so the row holds
-- exactly what the response contains.
INSERT INTO shop_order
    (tenant, id, customer_id, amount, currency, note, version, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7)
