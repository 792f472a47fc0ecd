-- What the simulated payment provider remembers of its own. The shop writes to it only by calling
-- the provider, never in a transaction of its own.

CREATE TABLE shop_provider_charge (
    key        text   NOT NULL COLLATE "C" PRIMARY KEY,
    id         text   NOT NULL,
    amount     bigint NOT NULL,
    currency   text   NOT NULL,
    created_at bigint NOT NULL
);
