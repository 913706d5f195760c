package edgewake;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * The rows of a state by their keys, packed, outside of the heap; and what changed since the last commit. For one thread at a time.
 *
 * A row lies in one place: Memory's four bytes, four of the key's hash, the lengths of key and value, then both. An index of words says where:
 * the address, and above it 16 bits of the hash; 0 where nothing is, GONE where something was.
 */
public final class Table {
  private static final int HASH = 4, KEY_BYTES = 8, VALUE_BYTES = 12, HEAD = 16;
  private static final long GONE = 1, ADDRESS = (1L << 48) - 1, SEED = 42, LEAST = 1024;
  /** A table that takes so many times of what it needs, and at least so much, is made anew. */
  private static final int WASTE = 4;
  private static final long WASTE_LEAST = 16 << 20;
  /** Places of notes, and bytes of removed keys, that stay from one commit to the next. */
  private static final int NOTES_MOST = 1 << 16;

  private final long plainMost;
  private final File folder;
  private Memory memory;
  private long index, slots, size, gone;
  private byte[] key = new byte[256], value = new byte[1024];
  private int keyBytes, valueBytes, hash;
  /** Addresses of rows that were put since the last commit; some may have been removed again, or be there twice. */
  private long[] put = new long[256];
  private int puts;
  /** Keys that were removed since then, each behind its length. */
  private byte[] removed = new byte[1024];
  private int removedBytes;
  private long moves;

  /** See Memory. */
  public Table(long plainMost, File folder) {
    this.plainMost = plainMost;
    this.folder = folder;
    empty();
  }

  /** Rows. */
  public long size() {
    return size;
  }

  /** Bytes that it takes. */
  public long reserved() {
    return memory.reserved();
  }

  /** The value of a key, or null. */
  public byte[] get(UnsafeRow row) {
    packKey(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
    long slot = find();
    if (slot < 0) {
      return null;
    }
    long place = Platform.getLong(null, index + slot * 8) & ADDRESS;
    return Packed.unpack(place + HEAD + Platform.getInt(null, place + KEY_BYTES));
  }

  /** Put a row. Throws UncheckedIOException where there is no more memory and no file can be had; then all is as it was. */
  public void put(UnsafeRow keyRow, UnsafeRow valueRow) {
    packKey(keyRow.getBaseObject(), keyRow.getBaseOffset(), keyRow.getSizeInBytes());
    value = roomy(value, Packed.most(valueRow.getSizeInBytes()));
    valueBytes = Packed.pack(valueRow.getBaseObject(), valueRow.getBaseOffset(), valueRow.getSizeInBytes(), value);
    note(store());
  }

  /** Remove a row, if it is there. */
  public void remove(UnsafeRow row) {
    packKey(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
    if (drop()) {
      if (removedBytes + 4 + keyBytes > removed.length) {
        removed = java.util.Arrays.copyOf(removed, twice(removedBytes + 4 + keyBytes));
      }
      Platform.putInt(removed, Platform.BYTE_ARRAY_OFFSET + removedBytes, keyBytes);
      System.arraycopy(key, 0, removed, removedBytes + 4, keyBytes);
      removedBytes += 4 + keyBytes;
    }
  }

  /** Put a row that is packed already, without a note of it. */
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

  /** Remove a row whose key is packed already, without a note of it. */
  public void unload(byte[] row, int keyLength) {
    keyBytes = keyLength;
    key = roomy(key, keyLength);
    System.arraycopy(row, 0, key, 0, keyLength);
    hash = hashOf();
    drop();
  }

  /** Bytes of all rows, and of what changed, as they are written. */
  public long bytes() {
    return memory.used();
  }

  public long changedBytes() {
    long found = removedBytes;
    for (int i = 0; i < puts; i++) {
      found += Memory.isFree(put[i]) ? 0 : Memory.room(put[i]);
    }
    return found;
  }

  /** Give what changed, or all, to `out`; keys that were removed come first, for they may be there again. */
  public void write(Rows out, boolean all) throws IOException {
    if (all) {
      Memory.Walk walk = memory.walk();
      for (long place = walk.next(); place != 0; place = walk.next()) {
        give(out, place);
      }
      return;
    }
    for (int at = 0; at < removedBytes; ) {
      int length = Platform.getInt(removed, Platform.BYTE_ARRAY_OFFSET + at);
      out.removed(removed, at + 4, length);
      at += 4 + length;
    }
    for (int i = 0; i < puts; i++) {
      if (!Memory.isFree(put[i])) {
        give(out, put[i]);
      }
    }
  }

  /** What changed is kept elsewhere now. */
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
      makeAnew();
    }
  }

  /** Without rows and notes. */
  public void clear() {
    close();
    empty();
  }

  /** Give the memory back; it is of no use any more until it is cleared. */
  public void close() {
    memory.close();
    puts = 0;
    removedBytes = 0;
    size = gone = slots = 0;
    moves++;
  }

  /** Through all rows. */
  public Walk walk() {
    return new Walk();
  }

  /** Takes rows that are packed. */
  public interface Rows {
    void row(long address, int keyBytes, int valueBytes) throws IOException;

    void removed(byte[] key, int at, int keyBytes) throws IOException;
  }

  /** Of the row that it stands at a key, and where it is asked for the value. Rows may be removed meanwhile. */
  public final class Walk {
    private final Memory.Walk places = memory.walk();
    private final long began = moves;
    private long place;

    /** Go to the next row, if there is one. */
    public boolean next() {
      if (began != moves) {
        throw new java.util.ConcurrentModificationException("the state was made anew");
      }
      place = places.next();
      return place != 0;
    }

    /** The key into the beginning of an array, which is returned, or a longer one in its place. */
    public byte[] key(byte[] into) {
      byte[] found = roomy(into, keyLength());
      Packed.unpack(place + HEAD, found);
      return found;
    }

    /** Bytes of the key. */
    public int keyLength() {
      return Packed.bytes(place + HEAD);
    }

    public byte[] value() {
      return Packed.unpack(place + HEAD + Platform.getInt(null, place + KEY_BYTES));
    }
  }

  private void packKey(Object row, long offset, int bytes) {
    key = roomy(key, Packed.most(bytes));
    keyBytes = Packed.pack(row, offset, bytes, key);
    hash = hashOf();
  }

  /** The array, or a longer and empty one where it has not so many bytes. */
  private static byte[] roomy(byte[] array, int bytes) {
    return bytes > array.length ? new byte[twice(bytes)] : array;
  }

  /** Room to grow, as far as an array can. */
  private static int twice(int bytes) {
    return (int) Math.min(2L * bytes, Integer.MAX_VALUE - 8);
  }

  private int hashOf() {
    long found = XXH64.hashUnsafeBytes(key, Platform.BYTE_ARRAY_OFFSET, keyBytes, SEED);
    return (int) (found ^ found >>> 32);
  }

  /** The slot of the key, or where it may be put as -1 - slot. */
  private long find() {
    long mask = slots - 1, slot = hash & mask, tag = (long) (hash >>> 16) << 48, vacant = -1;
    while (true) {
      long word = Platform.getLong(null, index + slot * 8);
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
    return Platform.getInt(null, place + HASH) == hash
        && Platform.getInt(null, place + KEY_BYTES) == keyBytes
        && ByteArrayMethods.arrayEquals(null, place + HEAD, key, Platform.BYTE_ARRAY_OFFSET, keyBytes);
  }

  /** Key and value that are packed here get a place; returns it. */
  private long store() {
    long slot = find();
    int bytes = HEAD + keyBytes + valueBytes;
    if (slot >= 0) {
      long place = Platform.getLong(null, index + slot * 8) & ADDRESS;
      if (bytes > Memory.room(place)) {
        long larger = memory.take(bytes);
        memory.giveBack(place);
        place = larger;
        fill(place);
        point(slot, place);
      } else {
        Platform.putInt(null, place + VALUE_BYTES, valueBytes);
        Platform.copyMemory(value, Platform.BYTE_ARRAY_OFFSET, null, place + HEAD + keyBytes, valueBytes);
      }
      return place;
    }
    if (4 * (size + gone + 1) > 3 * slots) {
      grow();
      slot = find();
    }
    long place = memory.take(bytes), at = -1 - slot;
    fill(place);
    if (Platform.getLong(null, index + at * 8) == GONE) {
      gone--;
    }
    point(at, place);
    size++;
    return place;
  }

  private void fill(long place) {
    Platform.putInt(null, place + HASH, hash);
    Platform.putInt(null, place + KEY_BYTES, keyBytes);
    Platform.putInt(null, place + VALUE_BYTES, valueBytes);
    Platform.copyMemory(key, Platform.BYTE_ARRAY_OFFSET, null, place + HEAD, keyBytes);
    Platform.copyMemory(value, Platform.BYTE_ARRAY_OFFSET, null, place + HEAD + keyBytes, valueBytes);
  }

  private void point(long slot, long place) {
    Platform.putLong(null, index + slot * 8, place | (long) (hash >>> 16) << 48);
  }

  private boolean drop() {
    long slot = find();
    if (slot < 0) {
      return false;
    }
    memory.giveBack(Platform.getLong(null, index + slot * 8) & ADDRESS);
    Platform.putLong(null, index + slot * 8, GONE);
    size--;
    gone++;
    return true;
  }

  private void note(long place) {
    if (puts == put.length) {
      put = java.util.Arrays.copyOf(put, 2 * puts);
    }
    put[puts++] = place;
  }

  private void empty() {
    Memory fresh = new Memory(plainMost, folder);
    index = fresh.block(8 * LEAST);
    memory = fresh;
    slots = LEAST;
    size = gone = 0;
  }

  /** An index with room for twice as many rows, without what is gone. */
  private void grow() {
    long before = index, count = slots, more = slots;
    while (more < 2 * (size + 1)) {
      more *= 2;
    }
    index = memory.block(8 * more);
    slots = more;
    gone = 0;
    for (long i = 0; i < count; i++) {
      long word = Platform.getLong(null, before + i * 8);
      if (word != 0 && word != GONE) {
        long mask = slots - 1, slot = Platform.getInt(null, (word & ADDRESS) + HASH) & mask;
        while (Platform.getLong(null, index + slot * 8) != 0) {
          slot = slot + 1 & mask;
        }
        Platform.putLong(null, index + slot * 8, word);
      }
    }
    memory.giveBackBlock(before);
  }

  /** The same rows in as much memory as they need, unless there is not even that much now. */
  private void makeAnew() {
    Memory before = memory;
    long indexBefore = index, slotsBefore = slots, sizeBefore = size, goneBefore = gone;
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
      // It stays as it is.
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
    keyBytes = Platform.getInt(null, place + KEY_BYTES);
    valueBytes = Platform.getInt(null, place + VALUE_BYTES);
    hash = Platform.getInt(null, place + HASH);
    key = roomy(key, keyBytes);
    value = roomy(value, valueBytes);
    Platform.copyMemory(null, place + HEAD, key, Platform.BYTE_ARRAY_OFFSET, keyBytes);
    Platform.copyMemory(null, place + HEAD + keyBytes, value, Platform.BYTE_ARRAY_OFFSET, valueBytes);
    store();
  }

  private void give(Rows out, long place) throws IOException {
    out.row(place + HEAD, Platform.getInt(null, place + KEY_BYTES), Platform.getInt(null, place + VALUE_BYTES));
  }
}
