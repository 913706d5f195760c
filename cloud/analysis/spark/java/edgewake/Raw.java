package edgewake;

import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Every access of ours to memory that Java does not check. An access outside of its block would end
 * the process, or read and write what belongs to somebody else.
 *
 * <p>With assertions enabled (`-ea:edgewake...`, as in the tests) each access is looked up in
 * {@link Blocks}. Without them, as in production, nothing is looked up and no time is lost. No
 * other class may call Platform's methods; tests/analysis/spark/test_memory_bounds.py checks that.
 */
public final class Raw {
  private static final long BYTES = Platform.BYTE_ARRAY_OFFSET;
  private static final long SEED = 42;

  private Raw() {}

  // -- Addresses, outside of the heap.

  public static byte getByte(long address) {
    assert Blocks.holds(address, 1);
    return Platform.getByte(null, address);
  }

  public static int getInt(long address) {
    assert Blocks.holds(address, 4);
    return Platform.getInt(null, address);
  }

  public static long getLong(long address) {
    assert Blocks.holds(address, 8);
    return Platform.getLong(null, address);
  }

  public static void putInt(long address, int value) {
    assert Blocks.holds(address, 4);
    Platform.putInt(null, address, value);
  }

  public static void putLong(long address, long value) {
    assert Blocks.holds(address, 8);
    Platform.putLong(null, address, value);
  }

  /** Sets bytes to 0. */
  public static void clear(long address, long bytes) {
    assert Blocks.holds(address, bytes);
    Platform.setMemory(null, address, bytes, (byte) 0);
  }

  // -- Arrays of bytes, with an index.

  public static int getInt(byte[] array, int at) {
    assert Blocks.holds(array, BYTES + at, 4);
    return Platform.getInt(array, BYTES + at);
  }

  public static void putInt(byte[] array, int at, int value) {
    assert Blocks.holds(array, BYTES + at, 4);
    Platform.putInt(array, BYTES + at, value);
  }

  public static void putLong(byte[] array, int at, long value) {
    assert Blocks.holds(array, BYTES + at, 8);
    Platform.putLong(array, BYTES + at, value);
  }

  /** Returns the hash of the first bytes of an array. */
  public static long hash(byte[] array, int bytes) {
    assert Blocks.holds(array, BYTES, bytes);
    return XXH64.hashUnsafeBytes(array, BYTES, bytes, SEED);
  }

  // -- Rows of Spark: an array and an offset, or, without an array, memory that Spark checks.

  public static long getLong(Object row, long offset) {
    assert row == null || Blocks.holds(row, offset, 8);
    return Platform.getLong(row, offset);
  }

  // -- Between arrays and addresses.

  /** Copies the first bytes of an array to an address. */
  public static void copy(byte[] from, long to, int bytes) {
    assert Blocks.holds(from, BYTES, bytes) && Blocks.holds(to, bytes);
    Platform.copyMemory(from, BYTES, null, to, bytes);
  }

  /** Copies bytes from an address into an array, from index `at` on. */
  public static void copy(long from, byte[] to, int at, int bytes) {
    assert Blocks.holds(from, bytes) && Blocks.holds(to, BYTES + at, bytes);
    Platform.copyMemory(null, from, to, BYTES + at, bytes);
  }

  /** Are the bytes at an address equal to the first bytes of an array? */
  public static boolean equal(long address, byte[] array, int bytes) {
    assert Blocks.holds(address, bytes) && Blocks.holds(array, BYTES, bytes);
    return ByteArrayMethods.arrayEquals(null, address, array, BYTES, bytes);
  }
}
