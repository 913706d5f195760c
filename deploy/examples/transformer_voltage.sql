-- name: transformer_voltage
-- description: Times in which a transformer's voltage was too high for five minutes, until it is well below
SELECT device, count(*) AS minutes, max(voltage) AS most, avg(current) AS current
FROM transformer
GROUP BY threshold_window(voltage > 245, voltage < 243, '5 minutes'), device
