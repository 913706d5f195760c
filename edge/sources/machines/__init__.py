"""Sources that talk to machines: Modbus, OPC UA, CAN, Bluetooth, this machine's own sensors."""
