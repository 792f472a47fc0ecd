-- Uploaded pictures. The file is in the data directory, named by its hash, and is written before
-- its row. Thumbnails are rows: they are small, and are committed together with the state of the
-- upload.

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

-- Finds out whether any upload refers to a file.
CREATE INDEX shop_upload_by_file ON shop_upload (sha256);

-- This table has a rowid, because rows of many kilobytes would make a b-tree by primary key slow.
CREATE TABLE shop_thumbnail (
    upload_id TEXT    NOT NULL REFERENCES shop_upload (id),
    size      INTEGER NOT NULL,
    width     INTEGER NOT NULL,
    height    INTEGER NOT NULL,
    sha256    TEXT    NOT NULL,
    content   BLOB    NOT NULL,
    PRIMARY KEY (upload_id, size)
) STRICT;
