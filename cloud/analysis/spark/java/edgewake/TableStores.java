package edgewake;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.CancellationException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore$;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator$;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.None$;
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;

/**
 * Spark's state of one partition, kept in a Table and in its files: for aggregations, which look rows up, put them, remove them, and go through them all.
 *
 * A task that was given up may still run while the next one begins: only the store that was opened last may touch the table, one call at a time.
 */
public final class TableStores implements StateStoreProvider {
  /** Setting of Spark: bytes that all states of a process may have in memory before they go on in files. */
  public static final String MEMORY = "spark.edgewake.stateMemory";

  private StateStoreId id;
  private StateStoreConf settings;
  private Configuration hadoop;
  private int keyFields, valueFields;
  private Table table;
  private TableFiles files;
  /** What the table is; -1 while it is no version. */
  private long loaded = -1;
  private Store last;
  private boolean isClosed;

  public void init(
      StateStoreId itsId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keyEncoder,
      boolean useColumnFamilies,
      StateStoreConf itsSettings,
      Configuration itsHadoop,
      boolean useMultipleValuesPerKey,
      Option stateSchemaProvider) {
    if (useColumnFamilies || useMultipleValuesPerKey) {
      throw unsupported();
    }
    id = itsId;
    settings = itsSettings;
    hadoop = itsHadoop;
    keyFields = keySchema.length();
    valueFields = valueSchema.length();
    long plainMost = SparkEnv.get().conf().getSizeAsBytes(MEMORY);
    files = new TableFiles(itsId.storeCheckpointLocation(), itsHadoop);
    table = new Table(plainMost, new File(System.getProperty("java.io.tmpdir")));
  }

  public StateStoreId stateStoreId() {
    return id;
  }

  public synchronized StateStore getStore(long version, Option uniqueId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    load(loadEmpty ? 0 : version);
    last = new Store(version);
    return written();
  }

  public synchronized ReadStateStore getReadStore(long version, Option uniqueId) {
    load(version);
    last = new Store(version);
    return last;
  }

  /** The same: a task reads on while it writes. */
  public synchronized StateStore upgradeReadStoreToWriteStore(ReadStateStore read, long version, Option uniqueId, boolean forceSnapshotOnCommit) {
    if (read != last) {
      throw taken(version);
    }
    return written();
  }

  private Store written() {
    last.isWriting = true;
    files.claim();
    return last;
  }

  /** Throws what Spark says of a state that cannot be read. */
  private void load(long version) {
    if (isClosed) { // between the moment when Spark found this and now
      throw taken(version);
    }
    if (last != null && last.isChanged) {
      loaded = -1;
    }
    last = null;
    if (loaded == version) {
      return;
    }
    loaded = -1;
    try {
      files.load(table, version);
    } catch (IOException why) {
      throw new UncheckedIOException("[CANNOT_LOAD_STATE_STORE] " + id + ", version " + version + ": " + why, why);
    }
    loaded = version;
  }

  /** Removes files that are not needed any more; called in a thread of its own, now and then. */
  public void doMaintenance() {
    long version;
    synchronized (this) {
      version = loaded;
    }
    if (version > settings.minVersionsToRetain()) {
      try {
        files.removeOld(version, settings.minVersionsToRetain());
      } catch (IOException away) {
        throw new UncheckedIOException(id + ": " + away, away);
      }
    }
  }

  public synchronized void close() {
    last = null;
    loaded = -1;
    isClosed = true;
    table.close();
    files.close();
  }

  public Seq supportedCustomMetrics() {
    return Nil$.MODULE$;
  }

  public Seq supportedInstanceMetrics() {
    return Nil$.MODULE$;
  }

  private final class Store implements StateStore {
    private final long version;
    private boolean isWriting, isChanged, isCommitted;

    Store(long version) {
      this.version = version;
    }

    public StateStoreId id() {
      return id;
    }

    public long version() {
      return version;
    }

    public UnsafeRow get(UnsafeRow key, String family) {
      synchronized (TableStores.this) {
        check();
        byte[] found = table.get(key);
        return found == null ? null : row(found, found.length, valueFields);
      }
    }

    public void put(UnsafeRow key, UnsafeRow value, String family) {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        table.put(key, value);
      }
    }

    public void remove(UnsafeRow key, String family) {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        table.remove(key);
      }
    }

    public StateStoreIterator iterator(String family) {
      synchronized (TableStores.this) {
        check();
        return new StateStoreIterator(new Rows(this), StateStoreIterator$.MODULE$.$lessinit$greater$default$2());
      }
    }

    public long commit() {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        try {
          files.save(table, version + 1);
          table.committed();
        } catch (IOException why) {
          throw new UncheckedIOException(id + ", version " + (version + 1) + " cannot be written: " + why, why);
        }
        isChanged = false;
        isCommitted = true;
        loaded = version + 1;
        last = null;
      }
      if (settings.commitValidationEnabled()) {
        StateStore$.MODULE$.reportCommitToCoordinator(version + 1, id, hadoop);
      }
      return version + 1;
    }

    /** What was changed is read again from the files. */
    public void abort() {
      synchronized (TableStores.this) {
        if (last == this) {
          loaded = isChanged ? -1 : loaded;
          last = null;
        }
      }
    }

    /** Of who only reads; who writes commits, or gives it up. */
    public void release() {
      if (!isWriting) {
        abort();
      }
    }

    public boolean hasCommitted() {
      return isCommitted;
    }

    public StateStoreMetrics metrics() {
      synchronized (TableStores.this) {
        Map none = Map$.MODULE$.empty();
        return new StateStoreMetrics(table.size(), table.reserved(), none, none);
      }
    }

    public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
      return new StateStoreCheckpointInfo(id.partitionId(), version + 1, None$.MODULE$, None$.MODULE$);
    }

    public Set allColumnFamilyNames() {
      return Set$.MODULE$.empty();
    }

    public boolean removeColFamilyIfExists(String family) {
      throw unsupported();
    }

    public void createColFamilyIfAbsent(
        String family, StructType key, StructType value, KeyStateEncoderSpec encoder, boolean useMultipleValuesPerKey, boolean isInternal) {
      throw unsupported();
    }

    public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
      throw unsupported();
    }

    public void merge(UnsafeRow key, UnsafeRow value, String family) {
      throw unsupported();
    }

    public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
      throw unsupported();
    }

    public Iterator valuesIterator(UnsafeRow key, String family) {
      throw unsupported();
    }

    public StateStoreIterator prefixScan(UnsafeRow prefix, String family) {
      throw unsupported();
    }

    public StateStoreIterator prefixScanWithMultiValues(UnsafeRow prefix, String family) {
      throw unsupported();
    }

    public StateStoreIterator iteratorWithMultiValues(String family) {
      throw unsupported();
    }

    private void check() {
      if (last != this) {
        throw taken(version);
      }
    }
  }

  private RuntimeException taken(long version) {
    return new CancellationException(id + ", version " + version + ": another task has the state now");
  }

  private static RuntimeException unsupported() {
    return new UnsupportedOperationException("this store is for aggregations");
  }

  private static UnsafeRow row(byte[] bytes, int length, int fields) {
    UnsafeRow made = new UnsafeRow(fields);
    made.pointTo(bytes, length);
    return made;
  }

  /** All rows; each is overwritten by the next one, and its value is only unpacked where it is asked for. */
  private final class Rows extends AbstractIterator {
    private final Store store;
    private final Table.Walk walk = table.walk();
    private final Pair pair = new Pair();
    private byte[] key = new byte[256];
    private boolean isAhead, isOver;

    Rows(Store store) {
      this.store = store;
    }

    public boolean hasNext() {
      if (!isAhead && !isOver) {
        synchronized (TableStores.this) {
          store.check();
          isAhead = walk.next();
          isOver = !isAhead;
        }
      }
      return isAhead;
    }

    public Object next() {
      if (!hasNext()) {
        throw new java.util.NoSuchElementException();
      }
      isAhead = false;
      synchronized (TableStores.this) {
        store.check();
        key = walk.key(key);
        pair.at(key, walk.keyLength());
      }
      return pair;
    }

    private final class Pair extends UnsafeRowPair {
      private final UnsafeRow itsKey = new UnsafeRow(keyFields);

      Pair() {
        super(null, null);
      }

      void at(byte[] bytes, int length) {
        itsKey.pointTo(bytes, length);
      }

      public UnsafeRow key() {
        return itsKey;
      }

      public UnsafeRow value() {
        synchronized (TableStores.this) {
          store.check();
          byte[] found = walk.value();
          return row(found, found.length, valueFields);
        }
      }
    }
  }
}
