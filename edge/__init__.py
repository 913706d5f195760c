"""All that runs on a device: the agent that sends and the client that receives.

Needs no Spark, Kafka or web framework.
"""
