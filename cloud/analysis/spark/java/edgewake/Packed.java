package edgewake;

import org.apache.spark.unsafe.Platform;

/**
 * Rows as Spark has them, words of eight bytes, without those words that are 0: of a group whose slots are mostly empty a third is left. Equal rows are
 * packed into equal bytes.
 *
 * How many words (seven bits a byte, the lowest first), then for each eight of them a byte that says which are not 0, and these.
 */
public final class Packed {
  /** Of a row, bytes: half of what an array may have. */
  public static final int ROW_MOST = 1 << 30;
  private static final long BYTES = Platform.BYTE_ARRAY_OFFSET;

  /** How many bytes packing may take at most. */
  public static int most(int bytes) {
    return 5 + bytes + bytes / 64 + 1;
  }

  /** Packs a row, which has whole words, to the beginning of `into`; returns how many bytes it is there. */
  public static int pack(Object row, long offset, int bytes, byte[] into) {
    if (bytes > ROW_MOST) {
      throw new IllegalArgumentException("a row of " + bytes + " bytes: expected at most " + ROW_MOST);
    }
    if ((bytes & 7) != 0) {
      throw new IllegalArgumentException("a row of " + bytes + " bytes: expected words of eight");
    }
    int words = bytes >>> 3, at = 0, left = words;
    while (left > 127) {
      into[at++] = (byte) (left | 128);
      left >>>= 7;
    }
    into[at++] = (byte) left;
    long from = offset;
    for (int first = 0; first < words; first += 8) {
      int some = Math.min(8, words - first), mask = 0, place = at++;
      for (int i = 0; i < some; i++) {
        long word = Platform.getLong(row, from);
        from += 8;
        if (word != 0) {
          mask |= 1 << i;
          Platform.putLong(into, BYTES + at, word);
          at += 8;
        }
      }
      into[place] = (byte) mask;
    }
    return at;
  }

  /** The bytes of the row that is packed at an address. */
  public static byte[] unpack(long address) {
    byte[] row = new byte[bytes(address)];
    unpack(address, row);
    return row;
  }

  /** How many bytes the row has that is packed there. */
  public static int bytes(long address) {
    int words = 0, shift = 0;
    long from = address;
    byte each;
    do {
      each = Platform.getByte(null, from++);
      words |= (each & 127) << shift;
      shift += 7;
    } while (each < 0);
    return words << 3;
  }

  /** The same into the beginning of an array that is long enough. */
  public static void unpack(long address, byte[] row) {
    int bytes = bytes(address);
    long from = address;
    while (Platform.getByte(null, from++) < 0) {
      continue;
    }
    long at = BYTES, last = BYTES + bytes;
    while (at < last) {
      int mask = Platform.getByte(null, from++);
      for (int i = 0; i < 8 && at < last; i++) {
        long word = 0;
        if ((mask & 1 << i) != 0) {
          word = Platform.getLong(null, from);
          from += 8;
        }
        Platform.putLong(row, at, word);
        at += 8;
      }
    }
  }
}
