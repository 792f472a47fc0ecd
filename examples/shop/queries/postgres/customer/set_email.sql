-- Sets the address of a customer. Changes no row if the customer has this address, so that only a
-- change has an event, also if several requests set it at once.
INSERT INTO shop_customer (tenant, id, email, changed_at)
VALUES ($1, $2, $3, $4)
ON CONFLICT (tenant, id) DO UPDATE
SET email = excluded.email, changed_at = excluded.changed_at
WHERE shop_customer.email <> excluded.email
