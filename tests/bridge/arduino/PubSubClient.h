// PubSubClient's calls over libmosquitto, which speaks MQTT 3.1.1 to a real broker.
#pragma once
#include <mosquitto.h>

#include "WiFi.h"

class PubSubClient {
  public:
    typedef void (*Callback)(char *, byte *, unsigned int);

    explicit PubSubClient(WiFiClient &) { mosquitto_lib_init(); }
    void setServer(const char *host, int port) {
        host_ = host;
        port_ = port;
    }
    void setCallback(Callback callback) { callback_ = callback; }
    bool connected() { return mosq_ && state_ == 0; }
    bool connect(const char *id, const char *user, const char *password, const char *willTopic, int willQos,
                 bool willRetain, const char *will) {
        if (mosq_) mosquitto_destroy(mosq_);
        mosq_ = mosquitto_new(id, true, this);
        state_ = -1;
        mosquitto_username_pw_set(mosq_, user, password);
        mosquitto_will_set(mosq_, willTopic, strlen(will), will, willQos, willRetain);
        mosquitto_connect_callback_set(mosq_, [](mosquitto *, void *self, int code) { ((PubSubClient *)self)->state_ = code; });
        mosquitto_disconnect_callback_set(mosq_, [](mosquitto *, void *self, int) { ((PubSubClient *)self)->state_ = -1; });
        mosquitto_message_callback_set(mosq_, [](mosquitto *, void *self, const mosquitto_message *message) {
            ((PubSubClient *)self)->callback_(message->topic, (byte *)message->payload, message->payloadlen);
        });
        if (mosquitto_connect(mosq_, host_, port_, 15) != MOSQ_ERR_SUCCESS) return false;
        for (unsigned long began = millis(); state_ == -1 && millis() - began < 15000;)
            if (mosquitto_loop(mosq_, 100, 1) != MOSQ_ERR_SUCCESS) return false;
        return connected();
    }
    bool subscribe(const char *topic) { return mosquitto_subscribe(mosq_, nullptr, topic, 0) == MOSQ_ERR_SUCCESS; }
    bool publish(const char *topic, const char *message) {
        return mosquitto_publish(mosq_, nullptr, topic, strlen(message), message, 0, false) == MOSQ_ERR_SUCCESS;
    }
    bool loop() {
        if (mosquitto_loop(mosq_, 10, 1) != MOSQ_ERR_SUCCESS) state_ = -1;
        return connected();
    }

  private:
    mosquitto *mosq_ = nullptr;
    const char *host_ = "";
    int port_ = 0, state_ = -1;
    Callback callback_ = nullptr;
};
