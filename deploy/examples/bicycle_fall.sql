-- name: bicycle_fall
-- description: A bicycle that was fast, stops at once and lies
SELECT device, max(speed_kmh) AS speed_before, count(*) AS readings
FROM bicycle
GROUP BY pattern_window('30 seconds', speed_kmh > 15, speed_kmh < 1, abs(lean_deg) > 60), device
