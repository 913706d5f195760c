# Stands for eclipse-mosquitto: its folders, its user and its command.
FROM edgewake-test/trixie
RUN mkdir -p /mosquitto/config /mosquitto/data /mosquitto/log && chown -R mosquitto /mosquitto
CMD ["mosquitto", "-c", "/mosquitto/config/mosquitto.conf"]
