-- Uploaded pictures. The file is in the data directory, named by its hash, and is written before
-- its row. Thumbnails are rows: they are small, and are committed together with the state of the
-- upload.

CREATE TABLE shop_upload (
    id           text   NOT NULL COLLATE "C" PRIMARY KEY,
    tenant       text   NOT NULL,
    name         text   NOT NULL,
    bytes        bigint NOT NULL,
    sha256       text   NOT NULL COLLATE "C",
    content_type text   NOT NULL,
    width        bigint NOT NULL,
    height       bigint NOT NULL,
    state        text   NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    reason       text,
    created_at   bigint NOT NULL
);

-- Finds out whether any upload refers to a file.
CREATE INDEX shop_upload_by_file ON shop_upload (sha256);

CREATE TABLE shop_thumbnail (
    upload_id text   NOT NULL COLLATE "C" REFERENCES shop_upload (id),
    size      bigint NOT NULL,
    width     bigint NOT NULL,
    height    bigint NOT NULL,
    sha256    text   NOT NULL,
    content   bytea  NOT NULL,
    PRIMARY KEY (upload_id, size)
);
