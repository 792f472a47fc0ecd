-- Uploaded pictures. The file lies in the data directory under its hash, and was there before its
-- row; the thumbnails are rows, for they are small and belong to one commit with the upload's state.

CREATE TABLE shop_upload (
    id           TEXT    NOT NULL PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    bytes        INTEGER NOT NULL,
    sha256       TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    width        INTEGER NOT NULL,
    height       INTEGER NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    reason       TEXT,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which files are named at all.
CREATE INDEX shop_upload_by_file ON shop_upload (sha256);

-- With a rowid: a row of many kilobytes does not belong into a b-tree of keys.
CREATE TABLE shop_thumbnail (
    upload_id TEXT    NOT NULL REFERENCES shop_upload (id),
    size      INTEGER NOT NULL,
    width     INTEGER NOT NULL,
    height    INTEGER NOT NULL,
    sha256    TEXT    NOT NULL,
    content   BLOB    NOT NULL,
    PRIMARY KEY (upload_id, size)
) STRICT;
