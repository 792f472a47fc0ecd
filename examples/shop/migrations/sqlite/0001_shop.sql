-- Tables of the shop. Ids increase with time, so each table is one b-tree in the order of its list.

CREATE TABLE shop_order (
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    customer_id TEXT    NOT NULL,
    amount      INTEGER NOT NULL CHECK (amount > 0),
    currency    TEXT    NOT NULL,
    note        TEXT,
    version     INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

-- A charge is found by its id alone: a received webhook names the charge, and the row of the charge
-- holds the tenant.
CREATE TABLE shop_charge (
    id         TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    order_id   TEXT,
    amount     INTEGER NOT NULL CHECK (amount > 0),
    currency   TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The refunds that the shop has requested, and those that a webhook has reported. The charge of
-- the latter may be unknown.
CREATE TABLE shop_refund (
    id         TEXT    NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    charge_id  TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount > 0),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The excess of a refund is the part of it by which the refunds of the charge exceed the charge.
CREATE TABLE shop_ledger_entry (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    charge_id  TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    source     TEXT    NOT NULL,
    excess     INTEGER NOT NULL CHECK (excess BETWEEN 0 AND amount),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX shop_ledger_entry_by_charge ON shop_ledger_entry (tenant, charge_id, id);

-- One user per tenant and folded address.
CREATE TABLE shop_user (
    tenant       TEXT    NOT NULL,
    email_folded TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    email        TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (tenant, email_folded)
) STRICT, WITHOUT ROWID;

-- One row, which the readiness check updates to verify that the database accepts writes.
CREATE TABLE shop_probe (
    id       INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    asked_at INTEGER NOT NULL
) STRICT;
