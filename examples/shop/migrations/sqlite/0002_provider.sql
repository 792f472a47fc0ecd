-- What the simulated payment provider remembers of its own. The shop writes to it only by calling
-- the provider, never in a transaction of its own.

CREATE TABLE shop_provider_charge (
    key        TEXT    NOT NULL PRIMARY KEY,
    id         TEXT    NOT NULL,
    amount     INTEGER NOT NULL,
    currency   TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
