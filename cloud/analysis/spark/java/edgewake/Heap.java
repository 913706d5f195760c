package edgewake;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;

/**
 * The old generation of the serial collector. To collect it the collector stops all threads, so
 * heap_collection.py chooses the moment.
 */
public final class Heap {
  private final MemoryPoolMXBean old;

  public Heap() {
    MemoryPoolMXBean found = null;
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      if (pool.getName().equals("Tenured Gen")) {
        found = pool;
      }
    }
    old = found;
  }

  /** Does this JVM use the serial collector? Without it the other methods must not be called. */
  public boolean isSerial() {
    return old != null;
  }

  /** Returns the bytes that the old generation uses. */
  public long used() {
    return old.getUsage().getUsed();
  }

  /** Returns the bytes from which on the collector collects before it takes more. */
  public long room() {
    return old.getUsage().getCommitted();
  }

  /** Collects the whole heap. */
  public void collect() {
    System.gc();
  }
}
