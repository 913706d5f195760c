-- name: turbine_below_curve
-- description: Times in which a turbine gave less than half of what the wind allows, for half an hour at least
SELECT device, count(*) AS readings, avg(power_kw) AS power, avg(curve_kw) AS possible
FROM turbine
GROUP BY threshold_window(curve_kw > 200 AND power_kw < 0.5 * curve_kw, power_kw > 0.8 * curve_kw OR curve_kw < 100, '30 minutes'), device
