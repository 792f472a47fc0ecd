-- The e-mail addresses of customers. A customer's id is chosen by the client.

CREATE TABLE shop_customer (
    tenant     text   NOT NULL COLLATE "C",
    id         text   NOT NULL COLLATE "C",
    email      text   NOT NULL,
    changed_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);
