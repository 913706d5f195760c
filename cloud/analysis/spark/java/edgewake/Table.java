package edgewake;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.ConcurrentModificationException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows of a state by their keys, packed and outside of the heap, and what changed since the
 * last commit. Not thread-safe.
 *
 * <p>A row lies in one place of {@link Memory}: four bytes of Memory's, four of the key's hash, the
 * lengths of key and value in bytes, then both. A hash table of words, the index, says where: a
 * word is the address, with 16 bits of the hash above it. It is 0 where no row is, and GONE where
 * one was.
 */
public final class Table {
  /** Offsets in a place, and the bytes before the key. */
  private static final int HASH = 4;

  private static final int KEY_BYTES = 8;
  private static final int VALUE_BYTES = 12;
  private static final int HEAD = 16;
  private static final long GONE = 1;
  private static final long ADDRESS = (1L << 48) - 1;

  /** Slots of the index of an empty table. */
  private static final long LEAST = 1024;

  /**
   * A table is copied into new memory at a commit where it takes WASTE times the bytes that it
   * needs, and at least WASTE_LEAST bytes.
   */
  private static final int WASTE = 4;

  private static final long WASTE_LEAST = 16 << 20;

  /** The notes of changes keep room for so many rows, and for so many bytes of removed keys. */
  private static final int NOTES_MOST = 1 << 16;

  private final long plainMost;
  private final File folder;
  private Memory memory;
  private long index;
  private long slots;
  private long size;
  private long gone;

  /** The row at hand, packed: what the methods below store, find or drop. */
  private byte[] key = new byte[256];

  private byte[] value = new byte[1024];
  private int keyBytes;
  private int valueBytes;
  private int hash;

  /**
   * Addresses of rows that were put since the last commit. Some may have been removed since, and an
   * address may be there twice.
   */
  private long[] put = new long[256];

  private int puts;

  /** Keys that were removed since the last commit, each behind its length. */
  private byte[] removed = new byte[1024];

  private int removedBytes;

  /** How often all rows got new addresses. */
  private long moves;

  /**
   * @param plainMost bytes that all memory of this process may have outside of files
   * @param folder where the files are made
   */
  public Table(long plainMost, File folder) {
    this.plainMost = plainMost;
    this.folder = folder;
    empty();
  }

  /** Returns how many rows there are. */
  public long size() {
    return size;
  }

  /** Returns the bytes that were taken from the system. */
  public long reserved() {
    return memory.reserved();
  }

  /** Returns the value of a key, or null. */
  public byte[] get(UnsafeRow row) {
    packKey(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
    long slot = find();
    if (slot < 0) {
      return null;
    }
    long place = Raw.getLong(index + slot * 8) & ADDRESS;
    return Packed.unpack(place + HEAD + Raw.getInt(place + KEY_BYTES));
  }

  /**
   * Puts a row. Throws UncheckedIOException where memory is used up and no file can be made; then
   * the table is as before.
   */
  public void put(UnsafeRow keyRow, UnsafeRow valueRow) {
    packKey(keyRow.getBaseObject(), keyRow.getBaseOffset(), keyRow.getSizeInBytes());
    value = roomy(value, Packed.most(valueRow.getSizeInBytes()));
    valueBytes =
        Packed.pack(
            valueRow.getBaseObject(), valueRow.getBaseOffset(), valueRow.getSizeInBytes(), value);
    note(store());
  }

  /** Removes a row, if it is there. */
  public void remove(UnsafeRow row) {
    packKey(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
    if (drop()) {
      if (removedBytes + 4 + keyBytes > removed.length) {
        removed = Arrays.copyOf(removed, twice(removedBytes + 4 + keyBytes));
      }
      Raw.putInt(removed, removedBytes, keyBytes);
      System.arraycopy(key, 0, removed, removedBytes + 4, keyBytes);
      removedBytes += 4 + keyBytes;
    }
  }

  /** Puts a row that is packed already, without a note of the change. */
  public void load(byte[] row, int keyLength, int valueLength) {
    keyBytes = keyLength;
    valueBytes = valueLength;
    key = roomy(key, keyLength);
    value = roomy(value, valueLength);
    System.arraycopy(row, 0, key, 0, keyLength);
    System.arraycopy(row, keyLength, value, 0, valueLength);
    hash = hashOf();
    store();
  }

  /** Removes a row whose key is packed already, without a note of the change. */
  public void unload(byte[] row, int keyLength) {
    keyBytes = keyLength;
    key = roomy(key, keyLength);
    System.arraycopy(row, 0, key, 0, keyLength);
    hash = hashOf();
    drop();
  }

  /** Returns about how many bytes all rows have when they are written. */
  public long bytes() {
    return memory.used();
  }

  /** Returns about how many bytes the changes have when they are written. */
  public long changedBytes() {
    long found = removedBytes;
    for (int i = 0; i < puts; i++) {
      found += Memory.isFree(put[i]) ? 0 : Memory.room(put[i]);
    }
    return found;
  }

  /**
   * Passes the changes, or all rows, to `out`. Removed keys come first, since some of them may have
   * been put again.
   */
  public void write(Rows out, boolean all) throws IOException {
    if (all) {
      Memory.Walk walk = memory.walk();
      for (long place = walk.next(); place != 0; place = walk.next()) {
        give(out, place);
      }
      return;
    }
    for (int at = 0; at < removedBytes; ) {
      int length = Raw.getInt(removed, at);
      out.removed(removed, at + 4, length);
      at += 4 + length;
    }
    for (int i = 0; i < puts; i++) {
      if (!Memory.isFree(put[i])) {
        give(out, put[i]);
      }
    }
  }

  /** Forgets what changed: the changes are written. */
  public void committed() {
    puts = 0;
    removedBytes = 0;
    if (put.length > NOTES_MOST) {
      put = new long[NOTES_MOST];
    }
    if (removed.length > NOTES_MOST) {
      removed = new byte[NOTES_MOST];
    }
    if (memory.reserved() > WASTE_LEAST && memory.reserved() > WASTE * (memory.used() + 8 * size)) {
      rebuild();
    }
  }

  /** Removes all rows and notes. */
  public void clear() {
    close();
    empty();
  }

  /** Frees the memory. The table cannot be used until it is cleared. */
  public void close() {
    memory.close();
    puts = 0;
    removedBytes = 0;
    size = 0;
    gone = 0;
    slots = 0;
    moves++;
  }

  /** Walks through all rows. */
  public Walk walk() {
    return new Walk();
  }

  /** What rows and removed keys, both packed, are written to. */
  public interface Rows {
    void row(long address, int keyBytes, int valueBytes) throws IOException;

    void removed(byte[] key, int at, int keyBytes) throws IOException;
  }

  /**
   * Unpacks the key of the row that it stands at, and its value where that is asked for. Rows may
   * be removed meanwhile.
   */
  public final class Walk {
    private final Memory.Walk places = memory.walk();
    private final long began = moves;
    private long place;

    /** Goes to the next row; false at the end. */
    public boolean next() {
      if (began != moves) {
        throw new ConcurrentModificationException("the state was copied into new memory");
      }
      place = places.next();
      return place != 0;
    }

    /**
     * Writes the key to the beginning of an array. Returns that array, or a longer one if needed.
     */
    public byte[] key(byte[] into) {
      byte[] found = roomy(into, keyLength());
      Packed.unpack(place + HEAD, found);
      return found;
    }

    /** Returns how many bytes the key has. */
    public int keyLength() {
      return Packed.bytes(place + HEAD);
    }

    /** Returns the value. */
    public byte[] value() {
      return Packed.unpack(place + HEAD + Raw.getInt(place + KEY_BYTES));
    }
  }

  private void packKey(Object row, long offset, int bytes) {
    key = roomy(key, Packed.most(bytes));
    keyBytes = Packed.pack(row, offset, bytes, key);
    hash = hashOf();
  }

  /** Returns the array, or a new and longer one where it has fewer bytes than that. */
  private static byte[] roomy(byte[] array, int bytes) {
    return bytes > array.length ? new byte[twice(bytes)] : array;
  }

  /** Returns twice as many bytes, as far as an array can have them. */
  private static int twice(int bytes) {
    return (int) Math.min(2L * bytes, Integer.MAX_VALUE - 8);
  }

  private int hashOf() {
    long found = Raw.hash(key, keyBytes);
    return (int) (found ^ found >>> 32);
  }

  /** Returns the slot of the key; where it is not there, -1 - the slot where it may be put. */
  private long find() {
    long mask = slots - 1;
    long slot = hash & mask;
    long tag = (long) (hash >>> 16) << 48;
    long vacant = -1;
    while (true) {
      long word = Raw.getLong(index + slot * 8);
      if (word == 0) {
        return -1 - (vacant < 0 ? slot : vacant);
      }
      if (word == GONE) {
        vacant = vacant < 0 ? slot : vacant;
      } else if ((word & ~ADDRESS) == tag && isOf(word & ADDRESS)) {
        return slot;
      }
      slot = slot + 1 & mask;
    }
  }

  private boolean isOf(long place) {
    return Raw.getInt(place + HASH) == hash
        && Raw.getInt(place + KEY_BYTES) == keyBytes
        && Raw.equal(place + HEAD, key, keyBytes);
  }

  /** Stores the row at hand and returns its place. */
  private long store() {
    long slot = find();
    int bytes = HEAD + keyBytes + valueBytes;
    if (slot >= 0) {
      long place = Raw.getLong(index + slot * 8) & ADDRESS;
      if (bytes > Memory.room(place)) {
        long larger = memory.take(bytes);
        memory.giveBack(place);
        place = larger;
        fill(place);
        point(slot, place);
      } else {
        Raw.putInt(place + VALUE_BYTES, valueBytes);
        Raw.copy(value, place + HEAD + keyBytes, valueBytes);
      }
      return place;
    }
    if (4 * (size + gone + 1) > 3 * slots) {
      grow();
      slot = find();
    }
    long place = memory.take(bytes);
    long at = -1 - slot;
    fill(place);
    if (Raw.getLong(index + at * 8) == GONE) {
      gone--;
    }
    point(at, place);
    size++;
    return place;
  }

  private void fill(long place) {
    Raw.putInt(place + HASH, hash);
    Raw.putInt(place + KEY_BYTES, keyBytes);
    Raw.putInt(place + VALUE_BYTES, valueBytes);
    Raw.copy(key, place + HEAD, keyBytes);
    Raw.copy(value, place + HEAD + keyBytes, valueBytes);
  }

  private void point(long slot, long place) {
    Raw.putLong(index + slot * 8, place | (long) (hash >>> 16) << 48);
  }

  private boolean drop() {
    long slot = find();
    if (slot < 0) {
      return false;
    }
    memory.giveBack(Raw.getLong(index + slot * 8) & ADDRESS);
    Raw.putLong(index + slot * 8, GONE);
    size--;
    gone++;
    return true;
  }

  private void note(long place) {
    if (puts == put.length) {
      put = Arrays.copyOf(put, 2 * puts);
    }
    put[puts++] = place;
  }

  private void empty() {
    Memory fresh = new Memory(plainMost, folder);
    index = fresh.block(8 * LEAST);
    memory = fresh;
    slots = LEAST;
    size = 0;
    gone = 0;
  }

  /** Makes an index with room for twice as many rows, without slots that are GONE. */
  private void grow() {
    long before = index;
    long count = slots;
    long more = slots;
    while (more < 2 * (size + 1)) {
      more *= 2;
    }
    index = memory.block(8 * more);
    slots = more;
    gone = 0;
    for (long i = 0; i < count; i++) {
      long word = Raw.getLong(before + i * 8);
      if (word != 0 && word != GONE) {
        long mask = slots - 1;
        long slot = Raw.getInt((word & ADDRESS) + HASH) & mask;
        while (Raw.getLong(index + slot * 8) != 0) {
          slot = slot + 1 & mask;
        }
        Raw.putLong(index + slot * 8, word);
      }
    }
    memory.giveBackBlock(before, 8 * count);
  }

  /**
   * Copies all rows into new memory, as much as they need, and frees the old one. Where no more
   * memory can be had the table stays as it is.
   */
  private void rebuild() {
    Memory before = memory;
    long indexBefore = index;
    long slotsBefore = slots;
    long sizeBefore = size;
    long goneBefore = gone;
    boolean isMade = false;
    moves++;
    try {
      Memory.Walk walk = before.walk();
      empty();
      for (long place = walk.next(); place != 0; place = walk.next()) {
        copy(place);
      }
      isMade = true;
    } catch (UncheckedIOException none) {
      // The old memory stays.
    } finally {
      if (isMade) {
        before.close();
      } else {
        if (memory != before) {
          memory.close();
        }
        memory = before;
        index = indexBefore;
        slots = slotsBefore;
        size = sizeBefore;
        gone = goneBefore;
      }
    }
  }

  private void copy(long place) {
    keyBytes = Raw.getInt(place + KEY_BYTES);
    valueBytes = Raw.getInt(place + VALUE_BYTES);
    hash = Raw.getInt(place + HASH);
    key = roomy(key, keyBytes);
    value = roomy(value, valueBytes);
    Raw.copy(place + HEAD, key, 0, keyBytes);
    Raw.copy(place + HEAD + keyBytes, value, 0, valueBytes);
    store();
  }

  private void give(Rows out, long place) throws IOException {
    out.row(place + HEAD, Raw.getInt(place + KEY_BYTES), Raw.getInt(place + VALUE_BYTES));
  }
}
