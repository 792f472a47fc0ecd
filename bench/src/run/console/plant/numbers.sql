-- Functions that derive values from the number of an event (n) or of a request (k).
CREATE OR REPLACE FUNCTION plant.position(n bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (n / $turn << 36) + n % $turn + 1;

CREATE OR REPLACE FUNCTION plant.at(n bigint) RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN 'epoch'::timestamptz + ($now - ($events - n) * $between) * interval '1 microsecond';

CREATE OR REPLACE FUNCTION plant.lag() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN $lag::bigint;

CREATE OR REPLACE FUNCTION plant.events() RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN $events::bigint;

-- Eight requests run concurrently, so their events alternate. Each has ten events.
CREATE OR REPLACE FUNCTION plant.request(n bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN n / 80 * 8 + n % 8;

CREATE OR REPLACE FUNCTION plant.key(k bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'req-' || md5(k::text);

CREATE OR REPLACE FUNCTION plant.headers(k bigint) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN '{"idempotency_key_hash":"'
        || left(encode(sha256(convert_to(plant.key(k), 'UTF8')), 'hex'), 16) || '"}';

-- A UUID of version 7: the milliseconds, and a hash in place of random bits.
CREATE OR REPLACE FUNCTION plant.event_id(n bigint) RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (lpad(to_hex(($now - ($events - n) * $between) / 1000), 12, '0')
        || '7a00' || '8' || substr(md5(n::text), 1, 15))::uuid;

CREATE OR REPLACE FUNCTION plant.tenant(k bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'tenant-' || lpad((k % 100)::text, 2, '0');

CREATE OR REPLACE FUNCTION plant.shard(n bigint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN hapax.shard_of('order', 'o-' || plant.request(n), NULL::uuid);

-- The partition of a parked delivery; most belong to the destination with four partitions.
CREATE OR REPLACE FUNCTION plant.partition(n bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN n / 2000 % 10 < 6 THEN 'hooks/' || (plant.shard(n) % 4)::text
                WHEN n / 2000 % 10 < 9 THEN 'mail'
                ELSE 'search' END;

-- The state of the delivery of an event; most events have no row.
CREATE OR REPLACE FUNCTION plant.state(n bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN n % 20000 = 750 THEN 'discarded'
                WHEN n % 500 = 250 THEN 'delivered'
                WHEN n % 2000 = 1 THEN 'dead'
                -- These events belong to the order of the dead letter.
                WHEN n % 2000 IN (9, 17) THEN 'blocked'
                WHEN n % 20000 = 1500 THEN 'scheduled'
                WHEN n % 2000 IN (500, 1500) THEN 'retrying' END;
