"""A door for devices and gateways that speak ThingsBoard's protocols."""
