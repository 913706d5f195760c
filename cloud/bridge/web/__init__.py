"""A door for readings by HTTP, and for devices that enrol themselves."""
