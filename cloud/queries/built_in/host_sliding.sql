-- name: host_sliding
-- description: Load of each machine over the last minute, every 10 seconds
-- lateness: 30 seconds
SELECT device, count(*) AS readings, avg(cpu_percent) AS cpu_mean, max(cpu_percent) AS cpu_max, avg(memory_percent) AS memory_mean
FROM host_metrics
GROUP BY window(event_time, '1 minute', '10 seconds'), device
