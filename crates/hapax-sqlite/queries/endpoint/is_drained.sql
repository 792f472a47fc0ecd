-- Returns whether an endpoint (?1) catches up and nothing waits for it.
SELECT EXISTS (
    SELECT 1
    FROM hapax_endpoint AS endpoint
    WHERE endpoint.id = ?1
      AND endpoint.catch_up_at IS NOT NULL
      AND NOT EXISTS (
          SELECT 1
          FROM hapax_endpoint_delivery AS delivery
          WHERE delivery.state = 'waiting' AND delivery.endpoint = endpoint.id
      )
) AS is_drained
