-- Counts the consecutive failures of an endpoint (?1): whether there was a success (?2), the number of
-- failures after it (?3), and the error of the last one (?4). A failure at least ?6 milliseconds after the
-- last counted span is another span. From ?7 failures on, no delivery is claimed for a while: ?8
-- milliseconds, and with each further failure twice as long, up to ?9. An endpoint that has no failure,
-- and had none, is not written. A clock that was set back moves the times with it.
UPDATE hapax_endpoint
SET failures = counted.failures,
    failing_since = CASE WHEN ?3 > 0 THEN counted.failing_since END,
    failing_spans = CASE WHEN ?3 = 0 THEN 0 ELSE counted.spans + counted.is_next END,
    failing_span_at = CASE WHEN ?3 = 0 THEN NULL WHEN counted.is_next THEN ?5 ELSE counted.span_at END,
    slow_until = CASE WHEN counted.failures >= ?7
                      THEN ?5 + min(?9, ?8 << min(counted.failures - ?7, 20)) END,
    last_error = CASE WHEN ?3 > 0 THEN ?4 END
FROM (
    SELECT failures, failing_since, spans, span_at,
           span_at IS NULL OR span_at + ?6 <= ?5 AS is_next
    FROM (
        SELECT CASE WHEN ?2 THEN 0 ELSE min(failures, 1000000000) END + ?3 AS failures,
               CASE WHEN ?2 OR failing_since IS NULL THEN ?5 ELSE min(failing_since, ?5) END
                   AS failing_since,
               CASE WHEN ?2 THEN 0 ELSE failing_spans END AS spans,
               CASE WHEN ?2 OR failing_span_at IS NULL THEN NULL ELSE min(failing_span_at, ?5) END
                   AS span_at
        FROM hapax_endpoint
        WHERE id = ?1
    )
) AS counted
WHERE id = ?1 AND deleted_at IS NULL AND (?3 > 0 OR hapax_endpoint.failures > 0)
RETURNING id, version, failures, failing_spans, ?5 - failing_since AS failing_ms
