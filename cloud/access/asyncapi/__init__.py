"""What is said and heard, by whatever protocol, as an AsyncAPI 3 document.

It describes event streams, WebSockets, the MQTT topics of devices, and webhooks. `document` puts it
together.
"""
