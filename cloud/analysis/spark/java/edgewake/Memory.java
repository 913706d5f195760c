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
import java.util.HashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.unsafe.Platform;

/**
 * Memory outside of the heap, in places of a few hundred sizes: one that was given back serves the next of its size. A place begins with four bytes
 * that are ours (its size, negative while it is free), so that all places can be walked through in the order in which they lie.
 *
 * What all of a process have together is bounded. What is more lies in files that are mapped: the system keeps them in memory as far as it can.
 */
public final class Memory {
  /** Of a place, bytes: what is ours, and what links the free ones. */
  private static final int LEAST = 16;
  /** Up to it sizes are 16 bytes apart, then an eighth of a power of two. */
  private static final int SMALL = 1024, SMALL_SHIFT = 10, STEP = 16, STEPS = 8, SIZES = SMALL / STEP + 21 * STEPS;
  /** Bytes taken from the system at once, as many as there are already: a lane with few keys has the least, a large one the most. */
  private static final int CHUNK_LEAST = 1 << 16, CHUNK_MOST = 1 << 20, FILE_LEAST = 1 << 18, FILE_MOST = 1 << 24;
  private static final byte[] ZEROS = new byte[1 << 16];
  /** Bytes that all of this process have, without files. */
  private static final AtomicLong PLAIN = new AtomicLong();

  private final long plainMost;
  private final File folder;
  /** Where regions begin and end; of the last one that is filled, `at` is the end. */
  private long[] begins = new long[8], ends = new long[8];
  private int regions, filled = -1;
  private long at, end, reserved, used;
  private final long[] free = new long[SIZES + 1];
  /** Address → bytes, of what is not in a file. */
  private final HashMap plain = new HashMap();
  /** Files, in the last of which there is something left. */
  private final ArrayList files = new ArrayList();
  private long fileAt, fileEnd;

  /** @param plainMost bytes that all of this process may have without files, which come into `folder` */
  public Memory(long plainMost, File folder) {
    this.plainMost = plainMost;
    this.folder = folder;
  }

  /** A place for so many bytes, the first four of which are ours. Throws UncheckedIOException where no file can be had for it. */
  public long take(int bytes) {
    int size = sizeOf(bytes);
    long place = free[size];
    if (place != 0) {
      free[size] = Platform.getLong(null, place + 8);
    } else {
      place = fresh(bytesOf(size));
    }
    Platform.putInt(null, place, size);
    used += bytesOf(size);
    return place;
  }

  /** Whoever has its address must not use it any more. */
  public void giveBack(long place) {
    int size = Platform.getInt(null, place);
    Platform.putInt(null, place, -size);
    Platform.putLong(null, place + 8, free[size]);
    free[size] = place;
    used -= bytesOf(size);
  }

  /** Was the place given back? */
  public static boolean isFree(long place) {
    return Platform.getInt(null, place) < 0;
  }

  /** How many bytes the place has, ours included. */
  public static int room(long place) {
    return bytesOf(Platform.getInt(null, place));
  }

  /** Bytes of places that are in use, and bytes taken from the system. */
  public long used() {
    return used;
  }

  public long reserved() {
    return reserved;
  }

  /** Bytes, all 0, that are no places. Throws UncheckedIOException, too. */
  public long block(long bytes) {
    long address = fromSystem(bytes);
    Platform.setMemory(null, address, bytes, (byte) 0);
    return address;
  }

  /** Of what lies in a file the room is lost until all is given back. */
  public void giveBackBlock(long address) {
    Long bytes = (Long) plain.remove(Long.valueOf(address));
    if (bytes != null) {
      Platform.freeMemory(address);
      PLAIN.addAndGet(-bytes.longValue());
      reserved -= bytes.longValue();
    }
  }

  /** Give everything back. */
  public void close() {
    Object[] all = plain.keySet().toArray();
    for (int i = 0; i < all.length; i++) {
      giveBackBlock(((Long) all[i]).longValue());
    }
    for (int i = 0; i < files.size(); i++) {
      unmap((ByteBuffer) files.get(i));
    }
    files.clear();
    regions = 0;
    filled = -1;
    at = end = used = reserved = fileAt = fileEnd = 0;
    java.util.Arrays.fill(free, 0L);
  }

  /** Through all places that are in use; those that are given back meanwhile are passed over, those taken may be. */
  public Walk walk() {
    return new Walk();
  }

  public final class Walk {
    private int region = -1;
    private long place, last;

    /** The next one, 0 at the end. */
    public long next() {
      while (true) {
        while (place < last) {
          long found = place;
          int size = Platform.getInt(null, found);
          place += bytesOf(Math.abs(size));
          if (size > 0) {
            return found;
          }
        }
        if (region + 1 >= regions) {
          return 0;
        }
        place = begins[++region];
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
      long size = Math.max(bytes, Math.min(CHUNK_MOST, Math.max(CHUNK_LEAST, reserved)));
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
      begins = java.util.Arrays.copyOf(begins, 2 * regions);
      ends = java.util.Arrays.copyOf(ends, 2 * regions);
    }
    begins[regions] = begin;
    ends[regions++] = last;
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
      plain.put(Long.valueOf(address), Long.valueOf(bytes));
      reserved += bytes;
      return address;
    }
    if (bytes > fileEnd - fileAt) {
      MappedByteBuffer file = mapped(Math.max(bytes, Math.min(FILE_MOST, Math.max(FILE_LEAST, reserved))));
      files.add(file);
      fileAt = Platform.getDirectBufferAddress(file);
      fileEnd = fileAt + file.capacity();
    }
    long address = fileAt;
    fileAt += bytes + STEP - 1 & -STEP;
    reserved += bytes;
    return address;
  }

  /** Are there so many bytes left for this process? Then they are taken. */
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

  /** Written before it is mapped: to a full disk what is mapped could not be written, and the system would end the process. */
  private MappedByteBuffer mapped(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      String why = "a block of the state has " + bytes + " bytes, a mapped file at most " + Integer.MAX_VALUE + ": state_memory is too small";
      throw new UncheckedIOException(why, new IOException(why));
    }
    try {
      File path = File.createTempFile("state", ".mapped", folder);
      RandomAccessFile file = new RandomAccessFile(path, "rw");
      try {
        for (long written = 0; written < bytes; written += ZEROS.length) {
          file.write(ZEROS, 0, (int) Math.min(ZEROS.length, bytes - written));
        }
        return file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0L, bytes);
      } finally {
        file.close();
        path.delete();
      }
    } catch (IOException none) {
      throw new UncheckedIOException("no file in " + folder + " for " + bytes + " bytes of the state: " + none, none);
    }
  }

  private static void unmap(ByteBuffer buffer) {
    try {
      Class kind = Class.forName("sun.misc.Unsafe");
      Field field = kind.getDeclaredField("theUnsafe");
      field.setAccessible(true);
      Method clean = kind.getMethod("invokeCleaner", new Class[] {ByteBuffer.class});
      clean.invoke(field.get(null), new Object[] {buffer});
    } catch (ReflectiveOperationException none) {
      throw new IllegalStateException(none);
    }
  }

  /** The number of the smallest size that has so many bytes, from 1. */
  private static int sizeOf(int bytes) {
    if (bytes <= SMALL) {
      return (Math.max(bytes, LEAST) + STEP - 1) / STEP;
    }
    int power = 31 - Integer.numberOfLeadingZeros(bytes - 1);
    int step = (1 << power) / STEPS;
    int size = SMALL / STEP + (power - SMALL_SHIFT) * STEPS + (bytes - (1 << power) + step - 1) / step;
    if (size > SIZES - STEPS) {
      throw new IllegalArgumentException("a row of the state has " + bytes + " bytes, at most 1 GiB");
    }
    return size;
  }

  private static int bytesOf(int size) {
    if (size <= SMALL / STEP) {
      return size * STEP;
    }
    int more = size - SMALL / STEP - 1;
    int power = SMALL_SHIFT + more / STEPS;
    return (1 << power) + (more % STEPS + 1) * ((1 << power) / STEPS);
  }
}
