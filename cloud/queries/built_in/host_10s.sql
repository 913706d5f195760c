-- name: host_10s
-- description: Load of each machine in windows of 10 seconds
-- lateness: 30 seconds
SELECT device, metric, count(value) AS readings, avg(value) AS mean, min(value) AS min, max(value) AS max
FROM host_metrics UNPIVOT (value FOR metric IN (cpu_percent, memory_percent, disk_percent))
GROUP BY window(event_time, '10 seconds'), device, metric
