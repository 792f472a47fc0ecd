-- The e-mail addresses of customers. A customer's id is chosen by the client.

CREATE TABLE shop_customer (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    email      TEXT    NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
