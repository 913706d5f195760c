// What a sketch uses of Arduino, on this machine: no chip, the same calls.
#pragma once
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

typedef unsigned char byte;
const int A0 = 0;

inline unsigned long millis() {
    static const auto began = std::chrono::steady_clock::now();
    auto passed = std::chrono::steady_clock::now() - began;
    return std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
}
inline void delay(unsigned long ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
inline int analogRead(int) { return 512; }

class String : public std::string {
  public:
    int indexOf(const char *other) const {
        auto at = find(other);
        return at == npos ? -1 : (int)at;
    }
};

class WiFiClient {};
struct {
    void begin(const char *, const char *) {}
} WiFi;
