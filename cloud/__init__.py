"""All that runs in the data centre: bridge, sequencer, analysis, access, push and operations,
around Kafka.
"""
