"""The data centre's parts: bridge, sequencer, analysis, access, push, operations, around Kafka."""
