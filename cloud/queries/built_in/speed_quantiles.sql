-- name: speed_quantiles
-- description: Quantiles of the speed of all vehicles in each minute (KLL)
-- lateness: 30 seconds
SELECT count(speed_kmh) AS readings,
       approx_percentile(speed_kmh, 0.5) AS p50, approx_percentile(speed_kmh, 0.9) AS p90, approx_percentile(speed_kmh, 0.99) AS p99
FROM vehicle_position
GROUP BY window(event_time, '1 minute')
