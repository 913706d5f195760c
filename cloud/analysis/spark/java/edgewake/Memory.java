package edgewake;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.unsafe.Platform;

/**
 * Memory outside of the heap, in places of a few hundred sizes. A place that was freed serves the
 * next request for its size. A place begins with four bytes of ours: its size, negative while it is
 * free. So all places can be walked through in the order in which they lie.
 *
 * <p>All instances of a process share one bound. Beyond it memory lies in mapped files, which the
 * system keeps in memory as far as it can.
 *
 * <p>Not thread-safe. With assertions enabled every place and block is registered in {@link
 * Blocks}.
 */
public final class Memory {
  /** The least size of a place, in bytes: our header, and the link between free places. */
  private static final int LEAST = 16;

  /** The link to the next free place of the same size lies at this offset. */
  private static final int LINK = 8;

  /** Up to SMALL bytes sizes are STEP bytes apart, then an eighth of a power of two. */
  private static final int SMALL = 1024;

  private static final int SMALL_SHIFT = 10;
  private static final int STEP = 16;
  private static final int STEPS = 8;
  private static final int SIZES = SMALL / STEP + 21 * STEPS;

  /**
   * Bytes that are taken from the system at once: as many as there are already, within these
   * bounds. So a lane with few keys takes little.
   */
  private static final int CHUNK_LEAST = 1 << 16;

  private static final int CHUNK_MOST = 1 << 20;
  private static final int FILE_LEAST = 1 << 18;
  private static final int FILE_MOST = 1 << 24;
  private static final byte[] ZEROS = new byte[1 << 16];

  /** Bytes that all instances of this process have outside of files. */
  private static final AtomicLong PLAIN = new AtomicLong();

  private final long plainMost;
  private final File folder;

  /** Where regions begin and end. The region `filled` is filled now, and ends at `at` so far. */
  private long[] begins = new long[8];

  private long[] ends = new long[8];
  private int regions;
  private int filled = -1;
  private long at;
  private long end;
  private long reserved;
  private long used;

  /** The first free place of each size, or 0. */
  private final long[] free = new long[SIZES + 1];

  /** Address → bytes, of what lies in no file. */
  private final Map<Long, Long> plain = new HashMap<>();

  /** Mapped files. Of the last one the bytes from `fileAt` to `fileEnd` are left. */
  private final List<MappedByteBuffer> files = new ArrayList<>();

  private long fileAt;
  private long fileEnd;

  /**
   * @param plainMost bytes that all instances of this process may have outside of files
   * @param folder where the files are made
   */
  public Memory(long plainMost, File folder) {
    this.plainMost = plainMost;
    this.folder = folder;
  }

  /**
   * Returns a place of at least so many bytes, the first four of which are ours. Throws
   * UncheckedIOException where no file can be made for it.
   */
  public long take(int bytes) {
    int size = sizeOf(bytes);
    int length = bytesOf(size);
    long place = free[size];
    if (place != 0) {
      free[size] = Raw.getLong(place + LINK);
      assert Blocks.resize(place, length);
    } else {
      place = fresh(length);
      assert Blocks.add(place, length);
    }
    Raw.putInt(place, size);
    used += length;
    return place;
  }

  /** Frees a place; nobody may use its address afterwards. */
  public void giveBack(long place) {
    int size = Raw.getInt(place);
    // A place that is free already has a negative size, for which Java throws here.
    long next = free[size];
    Raw.putInt(place, -size);
    Raw.putLong(place + LINK, next);
    assert Blocks.resize(place, LEAST);
    free[size] = place;
    used -= bytesOf(size);
  }

  /** Was the place freed? */
  public static boolean isFree(long place) {
    return Raw.getInt(place) < 0;
  }

  /** Returns how many bytes the place has, our header included. */
  public static int room(long place) {
    return bytesOf(Raw.getInt(place));
  }

  /** Returns the bytes of all places that are in use. */
  public long used() {
    return used;
  }

  /** Returns the bytes that were taken from the system. */
  public long reserved() {
    return reserved;
  }

  /**
   * Returns the address of a block of zeros, which is no place. Throws UncheckedIOException where
   * no file can be made for it.
   */
  public long block(long bytes) {
    long address = fromSystem(bytes);
    assert Blocks.add(address, bytes);
    Raw.clear(address, bytes);
    return address;
  }

  /**
   * Frees a block of so many bytes. What it takes of a file becomes free when this memory is
   * closed.
   */
  public void giveBackBlock(long address, long bytes) {
    assert Blocks.remove(address, bytes);
    freePlain(address);
  }

  /** Frees everything. */
  public void close() {
    for (Long address : new ArrayList<>(plain.keySet())) {
      freePlain(address);
    }
    for (MappedByteBuffer file : files) {
      assert Blocks.remove(Platform.getDirectBufferAddress(file), file.capacity());
      unmap(file);
    }
    files.clear();
    regions = 0;
    filled = -1;
    at = 0;
    end = 0;
    used = 0;
    reserved = 0;
    fileAt = 0;
    fileEnd = 0;
    Arrays.fill(free, 0L);
  }

  /** Walks through all places that are in use. */
  public Walk walk() {
    return new Walk();
  }

  /**
   * Skips places that are freed meanwhile; it may or may not see those that are taken meanwhile.
   */
  public final class Walk {
    private int region = -1;
    private long place;
    private long last;

    /** Returns the next place, 0 at the end. */
    public long next() {
      while (true) {
        while (place < last) {
          long found = place;
          int size = Raw.getInt(found);
          place += bytesOf(Math.abs(size));
          if (size > 0) {
            return found;
          }
        }
        if (region + 1 >= regions) {
          return 0;
        }
        region++;
        place = begins[region];
        last = region == filled ? at : ends[region];
      }
    }
  }

  private long fresh(int bytes) {
    if (bytes > CHUNK_MOST / 4) {
      long begin = fromSystem(bytes);
      addRegion(begin, begin + bytes);
      return begin;
    }
    if (bytes > end - at) {
      long chunk = Math.min(CHUNK_MOST, Math.max(CHUNK_LEAST, reserved));
      long size = Math.max(bytes, chunk);
      long begin = fromSystem(size);
      if (filled >= 0) {
        ends[filled] = at;
      }
      addRegion(begin, begin);
      filled = regions - 1;
      at = begin;
      end = begin + size;
    }
    long place = at;
    at += bytes;
    return place;
  }

  private void addRegion(long begin, long last) {
    if (regions == begins.length) {
      begins = Arrays.copyOf(begins, 2 * regions);
      ends = Arrays.copyOf(ends, 2 * regions);
    }
    begins[regions] = begin;
    ends[regions] = last;
    regions++;
  }

  private long fromSystem(long bytes) {
    if (isAllowed(bytes)) {
      long address;
      try {
        address = Platform.allocateMemory(bytes);
      } catch (OutOfMemoryError none) {
        PLAIN.addAndGet(-bytes);
        throw none;
      }
      plain.put(address, bytes);
      reserved += bytes;
      return address;
    }
    if (bytes > fileEnd - fileAt) {
      long size = Math.min(FILE_MOST, Math.max(FILE_LEAST, reserved));
      MappedByteBuffer file = mapped(Math.max(bytes, size));
      files.add(file);
      fileAt = Platform.getDirectBufferAddress(file);
      fileEnd = fileAt + file.capacity();
    }
    long address = fileAt;
    fileAt += (bytes + STEP - 1) & -STEP;
    reserved += bytes;
    return address;
  }

  /** Frees what begins at an address, unless that lies in a file. */
  private void freePlain(long address) {
    Long bytes = plain.remove(address);
    if (bytes != null) {
      assert Blocks.remove(address, bytes);
      Platform.freeMemory(address);
      PLAIN.addAndGet(-bytes);
      reserved -= bytes;
    }
  }

  /** Takes so many bytes of this process's bound; false where fewer are left. */
  private boolean isAllowed(long bytes) {
    while (true) {
      long before = PLAIN.get();
      if (before + bytes > plainMost) {
        return false;
      }
      if (PLAIN.compareAndSet(before, before + bytes)) {
        return true;
      }
    }
  }

  /**
   * Maps a new file. It is written first: where the disk is full, the system would end the process
   * at its first access to a page that cannot be written.
   */
  private MappedByteBuffer mapped(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      String why =
          "a block of the state has "
              + bytes
              + " bytes, a mapped file at most "
              + Integer.MAX_VALUE
              + ": state_memory is too small";
      throw new UncheckedIOException(why, new IOException(why));
    }
    try {
      File path = File.createTempFile("state", ".mapped", folder);
      try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
        for (long written = 0; written < bytes; written += ZEROS.length) {
          file.write(ZEROS, 0, (int) Math.min(ZEROS.length, bytes - written));
        }
        return file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0L, bytes);
      } finally {
        // The mapping needs no name, and a process that is killed leaves no file behind.
        path.delete();
      }
    } catch (IOException none) {
      String why = "no file in " + folder + " for " + bytes + " bytes of the state: " + none;
      throw new UncheckedIOException(why, none);
    }
  }

  /** Unmaps a file now; Java itself would do so when it collects the buffer. */
  private static void unmap(ByteBuffer buffer) {
    try {
      Class<?> kind = Class.forName("sun.misc.Unsafe");
      Field field = kind.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      Method clean = kind.getMethod("invokeCleaner", ByteBuffer.class);
      clean.invoke(field.get(null), buffer);
    } catch (ReflectiveOperationException none) {
      throw new IllegalStateException(none);
    }
  }

  /** Returns the number of the smallest size that has so many bytes, from 1 on. */
  private static int sizeOf(int bytes) {
    if (bytes <= SMALL) {
      return (Math.max(bytes, LEAST) + STEP - 1) / STEP;
    }
    int power = 31 - Integer.numberOfLeadingZeros(bytes - 1);
    int step = (1 << power) / STEPS;
    int steps = (bytes - (1 << power) + step - 1) / step;
    int size = SMALL / STEP + (power - SMALL_SHIFT) * STEPS + steps;
    if (size > SIZES - STEPS) {
      throw new IllegalArgumentException(
          "a row of the state has " + bytes + " bytes, at most 1 GiB");
    }
    return size;
  }

  /** Returns how many bytes a size has, by its number. */
  private static int bytesOf(int size) {
    if (size <= SMALL / STEP) {
      return size * STEP;
    }
    int more = size - SMALL / STEP - 1;
    int power = SMALL_SHIFT + more / STEPS;
    return (1 << power) + (more % STEPS + 1) * ((1 << power) / STEPS);
  }
}
