-- Health of endpoints: slower attempts before an endpoint is disabled, probes after it, and the recovery.
-- Applied once and then checked by its hash: never edit this file, add another one.

-- `failing_spans` counts the failures that are at least a span of time apart, the last of which was
-- recorded at `failing_span_at`: a clock that jumps makes one of them. A slowed endpoint has `slow_until`,
-- before which no relay claims its deliveries, and `last_error`. An endpoint that a relay has disabled
-- because it failed is probed at `probe_at`, after `probes` that have failed. `catch_up_at` is when an
-- endpoint was enabled whose queue is delivered in the order of the events, until it is empty.
ALTER TABLE hapax_endpoint ADD COLUMN failing_spans INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hapax_endpoint ADD COLUMN failing_span_at INTEGER;
ALTER TABLE hapax_endpoint ADD COLUMN slow_until INTEGER;
ALTER TABLE hapax_endpoint ADD COLUMN last_error TEXT;
ALTER TABLE hapax_endpoint ADD COLUMN probe_at INTEGER;
ALTER TABLE hapax_endpoint ADD COLUMN probes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hapax_endpoint ADD COLUMN catch_up_at INTEGER;
CREATE INDEX hapax_endpoint_probe ON hapax_endpoint (probe_at) WHERE probe_at IS NOT NULL;

-- When a delivery was claimed last.
ALTER TABLE hapax_endpoint_delivery ADD COLUMN tried_at INTEGER;
CREATE INDEX hapax_endpoint_delivery_oldest ON hapax_endpoint_delivery (endpoint, position)
    WHERE state = 'waiting';
