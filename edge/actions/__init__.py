"""What the device does by itself about an alert.

`progress` decides, `runner` commits, the others act.
"""
