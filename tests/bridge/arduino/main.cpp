// What Arduino's core does with a sketch.
#include "sketch.ino"

int main() {
    setup();
    for (;;) loop();
}
