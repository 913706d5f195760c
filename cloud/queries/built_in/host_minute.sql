-- name: host_minute
-- description: Load and traffic of each machine, minute by minute
-- lateness: 1 minute
SELECT device, metric, count(value) AS readings, avg(value) AS mean, min(value) AS min, max(value) AS max
FROM host_metrics UNPIVOT (value FOR metric IN (
  cpu_percent, memory_percent, disk_percent, load_1m, net_sent_bytes_s, net_recv_bytes_s, process_count))
GROUP BY window(event_time, '1 minute'), device, metric
