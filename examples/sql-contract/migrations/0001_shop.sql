-- The tables of the example services, beside those of Hapax: what an order and a payment leave.
CREATE TABLE IF NOT EXISTS shop_order (
    id         text PRIMARY KEY,
    tenant     text NOT NULL,
    item       text NOT NULL,
    amount     bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS ledger_entry (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id text NOT NULL,
    amount     bigint NOT NULL
);
