-- Uploaded pictures. The file lies in the data directory under its hash, and was there before its
-- row; the thumbnails are rows, for they are small and belong to one commit with the upload's state.

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

-- Which files are named at all.
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
