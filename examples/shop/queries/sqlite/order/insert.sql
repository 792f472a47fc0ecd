-- Single-shot: the answer was built before, so the row is exactly what it says.
INSERT INTO shop_order
    (tenant, id, customer_id, amount, currency, note, version, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?7)
