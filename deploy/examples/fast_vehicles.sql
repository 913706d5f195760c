-- name: fast_vehicles
-- description: How often each vehicle was faster than 50 km/h, and how fast, every ten seconds
SELECT device, count(*) AS times, max(speed_kmh) AS fastest
FROM vehicle_position
WHERE speed_kmh > 50
GROUP BY window(event_time, '10 seconds'), device
