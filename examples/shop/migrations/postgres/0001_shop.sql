-- Tables of the shop, in the first schema of the role's search path. Ids increase with time, so the
-- primary key of each table is a b-tree in the order of its list. Ids are compared by bytes. Points
-- in time are milliseconds since the Unix epoch.

CREATE TABLE shop_order (
    tenant      text   NOT NULL COLLATE "C",
    id          text   NOT NULL COLLATE "C",
    customer_id text   NOT NULL,
    amount      bigint NOT NULL CHECK (amount > 0),
    currency    text   NOT NULL,
    note        text,
    version     bigint NOT NULL,
    created_at  bigint NOT NULL,
    updated_at  bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- A charge is found by its id alone: a received webhook names the charge, and the row of the charge
-- holds the tenant.
CREATE TABLE shop_charge (
    id         text   NOT NULL COLLATE "C" PRIMARY KEY,
    tenant     text   NOT NULL,
    order_id   text,
    amount     bigint NOT NULL CHECK (amount > 0),
    currency   text   NOT NULL,
    created_at bigint NOT NULL
);

-- The refunds that the shop has requested, and those that a webhook has reported. The charge of
-- the latter may be unknown.
CREATE TABLE shop_refund (
    id         text   NOT NULL COLLATE "C" PRIMARY KEY,
    tenant     text   NOT NULL,
    charge_id  text   NOT NULL,
    amount     bigint NOT NULL CHECK (amount > 0),
    created_at bigint NOT NULL
);

-- The excess of a refund is the part of it by which the refunds of the charge exceed the charge.
CREATE TABLE shop_ledger_entry (
    tenant     text   NOT NULL COLLATE "C",
    id         text   NOT NULL COLLATE "C",
    charge_id  text   NOT NULL COLLATE "C",
    kind       text   NOT NULL,
    amount     bigint NOT NULL,
    source     text   NOT NULL,
    excess     bigint NOT NULL CHECK (excess BETWEEN 0 AND amount),
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX shop_ledger_entry_by_charge ON shop_ledger_entry (tenant, charge_id, id);

-- One user per tenant and folded address.
CREATE TABLE shop_user (
    tenant       text   NOT NULL COLLATE "C",
    email_folded text   NOT NULL COLLATE "C",
    id           text   NOT NULL,
    email        text   NOT NULL,
    name         text   NOT NULL,
    created_at   bigint NOT NULL,
    PRIMARY KEY (tenant, email_folded)
);

-- One row, which the readiness check updates to verify that the database accepts writes.
CREATE TABLE shop_probe (
    id       integer NOT NULL PRIMARY KEY CHECK (id = 1),
    asked_at bigint  NOT NULL
);
