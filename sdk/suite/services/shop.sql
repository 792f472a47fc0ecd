-- The tables of the suite's services, beside those of Hapax.
CREATE TABLE shop_order (
    id     text PRIMARY KEY,
    tenant text NOT NULL,
    item   text NOT NULL,
    amount bigint NOT NULL
);
CREATE TABLE ledger_entry (
    message_id text NOT NULL,
    amount     bigint NOT NULL
);
