package edgewake;

import java.util.Map;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.spark.unsafe.Platform;

/**
 * Registry of the blocks outside of the heap that may be accessed. It is called in assertions only,
 * so it is empty where they are disabled. Every method returns true, or throws an AssertionError
 * that says what is wrong.
 */
final class Blocks {
  /** First address of each block → the address behind its last byte. No two blocks overlap. */
  private static final ConcurrentNavigableMap<Long, Long> ENDS = new ConcurrentSkipListMap<>();

  private Blocks() {}

  /** Adds a block. */
  static boolean add(long address, long bytes) {
    Map.Entry<Long, Long> before = ENDS.lowerEntry(address + bytes);
    if (before != null && before.getValue() > address) {
      throw new AssertionError(
          text(address, bytes)
              + " overlaps "
              + text(before.getKey(), before.getValue() - before.getKey()));
    }
    ENDS.put(address, address + bytes);
    return true;
  }

  /** Gives a block another length. */
  static boolean resize(long address, long bytes) {
    if (ENDS.remove(address) == null) {
      throw new AssertionError("no block begins at " + address);
    }
    return add(address, bytes);
  }

  /** Removes all blocks in a range. */
  static boolean remove(long address, long bytes) {
    ENDS.subMap(address, address + bytes).clear();
    return true;
  }

  /** Does one block hold all these bytes? */
  static boolean holds(long address, long bytes) {
    Map.Entry<Long, Long> block = ENDS.floorEntry(address);
    if (bytes < 0 || block == null || address + bytes > block.getValue()) {
      String nearest =
          block == null ? "none" : text(block.getKey(), block.getValue() - block.getKey());
      throw new AssertionError(
          text(address, bytes) + " is in no block; the one before: " + nearest);
    }
    return true;
  }

  /** Does an array hold all these bytes? Offsets are Platform's: an array begins at its own. */
  static boolean holds(Object array, long offset, long bytes) {
    long begin = array instanceof byte[] ? Platform.BYTE_ARRAY_OFFSET : Platform.LONG_ARRAY_OFFSET;
    long length = array instanceof byte[] ? ((byte[]) array).length : 8L * ((long[]) array).length;
    if (bytes < 0 || offset < begin || offset - begin + bytes > length) {
      throw new AssertionError(
          bytes + " bytes at " + (offset - begin) + " of an array of " + length + " bytes");
    }
    return true;
  }

  private static String text(long address, long bytes) {
    return bytes + " bytes at " + address;
  }
}
