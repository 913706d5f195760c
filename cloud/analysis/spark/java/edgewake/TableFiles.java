package edgewake;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CancellationException;
import net.jpountz.lz4.LZ4BlockInputStream;
import net.jpountz.lz4.LZ4BlockOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;

/**
 * The files of a table in a checkpoint. Each version has one: N.changelog with what changed since
 * the version before, or N.snapshot with all rows, whichever is smaller.
 *
 * <p>A file holds blocks of LZ4 with checksums. In these are FORMAT and then the rows: the length
 * of the key, the length of the value or REMOVED, and both, packed. The end is END and the number
 * of rows.
 */
public final class TableFiles {
  private static final int FORMAT = 0x45575331;
  private static final int REMOVED = -1;
  private static final int END = -1;
  private static final int BLOCK = 1 << 16;

  /** After so many changelogs all rows are written, since a restart reads them one by one. */
  private static final int CHANGELOGS_MOST = 100;

  private static final String CHANGELOG = ".changelog";
  private static final String SNAPSHOT = ".snapshot";

  /**
   * Folder → who claimed it last in this process. A task that was cancelled may still write while
   * the next run of its query does.
   */
  private static final Map<Path, TableFiles> NEWEST = new HashMap<>();

  private final Path folder;
  private final CheckpointFileManager files;

  /** Bytes and number of the changelogs since the last snapshot. */
  private long since;

  private int changelogs;

  /** Makes the folder where there is none. */
  public TableFiles(Path folder, Configuration settings) {
    this.folder = folder;
    files = CheckpointFileManager$.MODULE$.create(folder, settings);
    files.mkdirs(folder);
  }

  /** From now on only this object may write to the folder. A reader does not claim it. */
  public void claim() {
    synchronized (NEWEST) {
      NEWEST.put(folder, this);
    }
  }

  /** Gives up the claim. */
  public void close() {
    synchronized (NEWEST) {
      NEWEST.remove(folder, this);
    }
  }

  /**
   * Replaces the table by that of a version; version 0 is empty. Throws IOException where a file is
   * missing or damaged.
   */
  public void load(Table table, long version) throws IOException {
    table.clear();
    long first = lastSnapshot(files.list(folder), version);
    since = 0;
    changelogs = 0;
    if (first > 0) {
      read(table, path(first, SNAPSHOT));
    }
    for (long next = first + 1; next <= version; next++) {
      since += read(table, path(next, CHANGELOG));
      changelogs++;
    }
  }

  /**
   * Writes the table as a version. Throws CancellationException where another object claimed the
   * folder meanwhile, or the task was cancelled.
   */
  public void save(Table table, long version) throws IOException {
    long changed = table.changedBytes();
    boolean all = since + changed >= table.bytes() || changelogs >= CHANGELOGS_MOST;
    Path path = path(version, all ? SNAPSHOT : CHANGELOG);
    CheckpointFileManager.CancellableFSDataOutputStream file = files.createAtomic(path, true);
    boolean isWritten = false;
    try {
      Writer writer = new Writer(new DataOutputStream(new LZ4BlockOutputStream(file, BLOCK)));
      table.write(writer, all);
      writer.end();
      writer.out.flush();
      synchronized (NEWEST) {
        check();
        // Where a batch is computed again its version has a file already. Spark would keep a file
        // of the same name as it is, and of two names a reader could not know which one counts.
        remove(path(version, CHANGELOG));
        remove(path(version, SNAPSHOT));
        writer.out.close();
      }
      isWritten = true;
    } finally {
      if (!isWritten) {
        file.cancel();
      }
    }
    since = all ? 0 : since + changed;
    changelogs = all ? 0 : changelogs + 1;
  }

  /**
   * Removes files that neither `version` (or the last one there is) nor `retained` before it need.
   */
  public void removeOld(long version, long retained) throws IOException {
    if (!files.exists(folder)) {
      // The query's checkpoint was removed.
      return;
    }
    FileStatus[] found = files.list(folder);
    long newest = 0;
    for (FileStatus file : found) {
      newest = Math.max(newest, versionOf(file.getPath().getName()));
    }
    long first = lastSnapshot(found, Math.min(version, newest) - retained);
    for (FileStatus file : found) {
      long each = versionOf(file.getPath().getName());
      if (each > 0 && each < first) {
        files.delete(file.getPath());
      }
    }
  }

  /** Returns the last snapshot up to a version, 0 where there is none. */
  private static long lastSnapshot(FileStatus[] found, long most) {
    long last = 0;
    for (FileStatus file : found) {
      String name = file.getPath().getName();
      long version = versionOf(name);
      if (name.endsWith(SNAPSHOT) && version <= most) {
        last = Math.max(last, version);
      }
    }
    return last;
  }

  /** Reads a file into the table. Returns how many bytes of rows it has. */
  private long read(Table table, Path path) throws IOException {
    byte[] row = new byte[1024];
    long bytes = 0;
    long rows = 0;
    try (DataInputStream in =
        new DataInputStream(LZ4BlockInputStream.newBuilder().build(files.open(path)))) {
      int form = in.readInt();
      if (form != FORMAT) {
        throw new IOException("expected format " + FORMAT + ", found " + form);
      }
      for (int keyBytes = in.readInt(); keyBytes != END; keyBytes = in.readInt()) {
        int valueBytes = in.readInt();
        boolean areLengths =
            keyBytes >= 0
                && keyBytes <= Packed.ROW_MOST
                && valueBytes >= REMOVED
                && valueBytes <= Packed.ROW_MOST - keyBytes;
        if (!areLengths) {
          throw new IOException("expected lengths, found " + keyBytes + " and " + valueBytes);
        }
        int length = keyBytes + Math.max(0, valueBytes);
        if (length > row.length) {
          row = new byte[length + length / 4];
        }
        in.readFully(row, 0, length);
        if (valueBytes == REMOVED) {
          table.unload(row, keyBytes);
        } else {
          table.load(row, keyBytes, valueBytes);
        }
        bytes += length;
        rows++;
      }
      if (in.readLong() != rows || in.read() != -1) {
        throw new IOException("expected as many rows as it says at its end, and no more");
      }
    } catch (EOFException end) {
      throw new IOException(path + ": it ends after row " + rows, end);
    } catch (IOException damaged) {
      String why = path + ": damaged after row " + rows + ": " + damaged.getMessage();
      throw new IOException(why, damaged);
    }
    return bytes;
  }

  private void check() {
    TaskContext task = TaskContext.get();
    boolean isCancelled = task != null && task.isInterrupted();
    if (NEWEST.get(folder) != this || isCancelled) {
      throw new CancellationException(folder + ": another task has the state now");
    }
  }

  private void remove(Path path) {
    if (files.exists(path)) {
      files.delete(path);
    }
  }

  private Path path(long version, String kind) {
    return new Path(folder, version + kind);
  }

  /** Returns the version that a file is of, 0 where it is neither changelog nor snapshot. */
  private static long versionOf(String name) {
    int end = name.indexOf('.');
    if (end <= 0 || !(name.endsWith(CHANGELOG) || name.endsWith(SNAPSHOT))) {
      return 0;
    }
    try {
      return Long.parseLong(name.substring(0, end));
    } catch (NumberFormatException none) {
      return 0;
    }
  }

  /** Writes rows as the class describes. */
  private static final class Writer implements Table.Rows {
    final DataOutputStream out;
    private byte[] row = new byte[1024];
    private long rows;

    Writer(DataOutputStream out) throws IOException {
      this.out = out;
      out.writeInt(FORMAT);
    }

    @Override
    public void row(long address, int keyBytes, int valueBytes) throws IOException {
      int length = keyBytes + valueBytes;
      if (length + 8 > row.length) {
        row = new byte[length + length / 4 + 8];
      }
      head(keyBytes, valueBytes);
      Raw.copy(address, row, 8, length);
      out.write(row, 0, length + 8);
      rows++;
    }

    @Override
    public void removed(byte[] keys, int at, int keyBytes) throws IOException {
      head(keyBytes, REMOVED);
      out.write(row, 0, 8);
      out.write(keys, at, keyBytes);
      rows++;
    }

    /** Puts both lengths at the beginning of `row`, as DataOutputStream writes an int. */
    private void head(int keyBytes, int valueBytes) {
      row[0] = (byte) (keyBytes >>> 24);
      row[1] = (byte) (keyBytes >>> 16);
      row[2] = (byte) (keyBytes >>> 8);
      row[3] = (byte) keyBytes;
      row[4] = (byte) (valueBytes >>> 24);
      row[5] = (byte) (valueBytes >>> 16);
      row[6] = (byte) (valueBytes >>> 8);
      row[7] = (byte) valueBytes;
    }

    void end() throws IOException {
      out.writeInt(END);
      out.writeLong(rows);
    }
  }
}
