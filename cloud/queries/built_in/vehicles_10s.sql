-- name: vehicles_10s
-- description: Speed of each vehicle in windows of 10 seconds
-- lateness: 30 seconds
SELECT device, count(speed_kmh) AS readings, avg(speed_kmh) AS mean, min(speed_kmh) AS min, max(speed_kmh) AS max
FROM vehicle_position
GROUP BY window(event_time, '10 seconds'), device
