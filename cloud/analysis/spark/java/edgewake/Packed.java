package edgewake;

/**
 * Rows as Spark has them, which are words of eight bytes, without those words that are 0. Of a
 * group whose slots are mostly empty a third is left. Equal rows are packed into equal bytes.
 *
 * <p>A packed row begins with the number of its words, seven bits a byte with the lowest bits
 * first. Then, for each eight words, comes a byte that says which of them are not 0, and these
 * words.
 */
public final class Packed {
  /** Bytes of a row at most: half of what an array may have. */
  public static final int ROW_MOST = 1 << 30;

  private Packed() {}

  /** Returns how many bytes the packed form of a row takes at most. */
  public static int most(int bytes) {
    return 5 + bytes + bytes / 64 + 1;
  }

  /**
   * Packs a row to the beginning of `into` and returns how many bytes it is there. Throws
   * IllegalArgumentException for a row that is too long or does not have whole words.
   */
  public static int pack(Object row, long offset, int bytes, byte[] into) {
    if (bytes > ROW_MOST) {
      throw new IllegalArgumentException(
          "a row of " + bytes + " bytes: expected at most " + ROW_MOST);
    }
    if ((bytes & 7) != 0) {
      throw new IllegalArgumentException("a row of " + bytes + " bytes: expected words of eight");
    }
    int words = bytes >>> 3;
    int at = 0;
    int left = words;
    while (left > 127) {
      into[at++] = (byte) (left | 128);
      left >>>= 7;
    }
    into[at++] = (byte) left;
    long from = offset;
    for (int first = 0; first < words; first += 8) {
      int some = Math.min(8, words - first);
      int mask = 0;
      int maskAt = at++;
      for (int i = 0; i < some; i++) {
        long word = Raw.getLong(row, from);
        from += 8;
        if (word != 0) {
          mask |= 1 << i;
          Raw.putLong(into, at, word);
          at += 8;
        }
      }
      into[maskAt] = (byte) mask;
    }
    return at;
  }

  /** Returns the row that is packed at an address. */
  public static byte[] unpack(long address) {
    byte[] row = new byte[bytes(address)];
    unpack(address, row);
    return row;
  }

  /** Returns how many bytes the row has that is packed at an address. */
  public static int bytes(long address) {
    int words = 0;
    int shift = 0;
    long from = address;
    byte each;
    do {
      each = Raw.getByte(from++);
      words |= (each & 127) << shift;
      shift += 7;
    } while (each < 0);
    return words << 3;
  }

  /** Unpacks the row at an address to the beginning of an array, which must be long enough. */
  public static void unpack(long address, byte[] row) {
    int last = bytes(address);
    long from = address;
    while (Raw.getByte(from++) < 0) {
      continue;
    }
    int at = 0;
    while (at < last) {
      int mask = Raw.getByte(from++);
      for (int i = 0; i < 8 && at < last; i++) {
        long word = 0;
        if ((mask & 1 << i) != 0) {
          word = Raw.getLong(from);
          from += 8;
        }
        Raw.putLong(row, at, word);
        at += 8;
      }
    }
  }
}
