-- name: top_streets
-- description: The five streets with most reports in each minute (frequent items)
-- lateness: 30 seconds
SELECT approx_top_k(street, 5) AS streets
FROM vehicle_position
GROUP BY window(event_time, '1 minute')
