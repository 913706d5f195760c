package edgewake;

import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;

/** What the serial collector takes for old, which it collects with everything else, while all threads stand still. */
public final class Heap {
  private final MemoryPoolMXBean old;

  public Heap() {
    MemoryPoolMXBean found = null;
    for (Object pool : ManagementFactory.getMemoryPoolMXBeans()) {
      if (((MemoryPoolMXBean) pool).getName().equals("Tenured Gen")) {
        found = (MemoryPoolMXBean) pool;
      }
    }
    old = found;
  }

  /** Is this the collector? */
  public boolean isSerial() {
    return old != null;
  }

  /** Bytes that it uses. */
  public long used() {
    return old.getUsage().getUsed();
  }

  /** Bytes from which on the collector collects before it takes more. */
  public long room() {
    return old.getUsage().getCommitted();
  }

  public void collect() {
    System.gc();
  }
}
