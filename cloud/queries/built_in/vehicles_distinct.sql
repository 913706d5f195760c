-- name: vehicles_distinct
-- description: How many different vehicles reported in each minute (HyperLogLog)
-- lateness: 30 seconds
SELECT approx_count_distinct(device) AS vehicles, count(*) AS readings
FROM vehicle_position
GROUP BY window(event_time, '1 minute')
