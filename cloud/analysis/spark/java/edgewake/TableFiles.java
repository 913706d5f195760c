package edgewake;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.HashMap;
import java.util.concurrent.CancellationException;
import net.jpountz.lz4.LZ4BlockInputStream;
import net.jpountz.lz4.LZ4BlockOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;
import org.apache.spark.unsafe.Platform;

/**
 * The files of a table in a checkpoint: each version has one, N.changelog with what changed since the version before, or N.snapshot with all rows,
 * whichever is smaller.
 *
 * In it are blocks of LZ4 with their checksums, and in these FORMAT, then rows: bytes of the key, bytes of the value or REMOVED, both packed; last END
 * and how many there were.
 */
public final class TableFiles {
  private static final int FORMAT = 0x45575331, REMOVED = -1, END = -1, BLOCK = 1 << 16;
  /** Changelogs after which all rows are written, however many: a restart reads them one by one. */
  private static final int CHANGELOGS_MOST = 100;
  private static final String CHANGELOG = ".changelog", SNAPSHOT = ".snapshot";

  /** Folder → who began to write it last, in this process. A task that was given up may still write when the next run of its query does. */
  private static final HashMap NEWEST = new HashMap();

  private final Path folder;
  private final CheckpointFileManager files;
  /** Bytes and number of the changelogs since the last snapshot. */
  private long since;
  private int changelogs;

  public TableFiles(Path folder, Configuration settings) {
    this.folder = folder;
    files = CheckpointFileManager$.MODULE$.create(folder, settings);
    files.mkdirs(folder);
  }

  /** From now on only this one may write the folder; whoever only reads it takes it from nobody. */
  public void claim() {
    synchronized (NEWEST) {
      NEWEST.put(folder, this);
    }
  }

  /** It writes no more. */
  public void close() {
    synchronized (NEWEST) {
      NEWEST.remove(folder, this);
    }
  }

  /** Make the table that of a version; 0 is empty. Throws IOException where a file is missing or damaged. */
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

  /** Write what the table is as a version. Throws CancellationException where another one claimed the folder meanwhile, or the task was given up. */
  public void save(Table table, long version) throws IOException {
    long changed = table.changedBytes();
    boolean all = since + changed >= table.bytes() || changelogs >= CHANGELOGS_MOST;
    CheckpointFileManager.CancellableFSDataOutputStream file = files.createAtomic(path(version, all ? SNAPSHOT : CHANGELOG), true);
    boolean isWritten = false;
    try {
      Writer writer = new Writer(new DataOutputStream(new LZ4BlockOutputStream(file, BLOCK)));
      table.write(writer, all);
      writer.end();
      writer.out.flush();
      synchronized (NEWEST) {
        check();
        // Of the same version there is something where its batch is computed again: Spark would let a file of that name stand as it is, and of
        // two names a reader could not tell which one it is.
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

  /** Remove what is not needed for `version`, or the last one there is, and so many before it. */
  public void removeOld(long version, long retained) throws IOException {
    if (!files.exists(folder)) { // the query's checkpoint was removed
      return;
    }
    FileStatus[] found = files.list(folder);
    long newest = 0;
    for (int i = 0; i < found.length; i++) {
      newest = Math.max(newest, versionOf(found[i].getPath().getName()));
    }
    long first = lastSnapshot(found, Math.min(version, newest) - retained);
    for (int i = 0; i < found.length; i++) {
      long each = versionOf(found[i].getPath().getName());
      if (each > 0 && each < first) {
        files.delete(found[i].getPath());
      }
    }
  }

  /** 0 where there is none. */
  private static long lastSnapshot(FileStatus[] found, long most) {
    long last = 0;
    for (int i = 0; i < found.length; i++) {
      String name = found[i].getPath().getName();
      long version = versionOf(name);
      last = name.endsWith(SNAPSHOT) && version <= most ? Math.max(last, version) : last;
    }
    return last;
  }

  /** Returns about how many bytes of rows there are in it. */
  private long read(Table table, Path path) throws IOException {
    byte[] row = new byte[1024];
    long bytes = 0, rows = 0;
    DataInputStream in = new DataInputStream(new LZ4BlockInputStream(files.open(path)));
    try {
      int form = in.readInt();
      if (form != FORMAT) {
        throw new IOException("expected format " + FORMAT + ", found " + form);
      }
      for (int keyBytes = in.readInt(); keyBytes != END; keyBytes = in.readInt()) {
        int valueBytes = in.readInt();
        if (keyBytes < 0 || keyBytes > Packed.ROW_MOST || valueBytes < REMOVED || valueBytes > Packed.ROW_MOST - keyBytes) {
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
      throw new IOException(path + ": damaged after row " + rows + ": " + damaged.getMessage(), damaged);
    } finally {
      in.close();
    }
    return bytes;
  }

  private void check() {
    TaskContext task = TaskContext.get();
    if (NEWEST.get(folder) != this || task != null && task.isInterrupted()) {
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

  /** 0 of a file that is none of these. */
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

  private static final class Writer implements Table.Rows {
    final DataOutputStream out;
    private byte[] row = new byte[1024];
    private long rows;

    Writer(DataOutputStream out) throws IOException {
      this.out = out;
      out.writeInt(FORMAT);
    }

    public void row(long address, int keyBytes, int valueBytes) throws IOException {
      int length = keyBytes + valueBytes;
      if (length + 8 > row.length) {
        row = new byte[length + length / 4 + 8];
      }
      head(keyBytes, valueBytes);
      Platform.copyMemory(null, address, row, Platform.BYTE_ARRAY_OFFSET + 8, length);
      out.write(row, 0, length + 8);
      rows++;
    }

    public void removed(byte[] keys, int at, int keyBytes) throws IOException {
      head(keyBytes, REMOVED);
      out.write(row, 0, 8);
      out.write(keys, at, keyBytes);
      rows++;
    }

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
