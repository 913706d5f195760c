package edgewake;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.NoSuchElementException;
import java.util.concurrent.CancellationException;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
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
import scala.Option;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;

/**
 * Spark's state of one partition, kept in a {@link Table} and in its files. It serves aggregations,
 * which look up, put, remove and list rows.
 *
 * <p>A task that was cancelled may still run while the next one begins. So only the store that was
 * opened last may use the table, one call at a time.
 */
public final class TableStores implements StateStoreProvider {
  /** Setting of Spark: bytes that all states of a process may have outside of files. */
  public static final String MEMORY = "spark.edgewake.stateMemory";

  private StateStoreId id;
  private StateStoreConf settings;
  private Configuration hadoop;
  private int keyFields;
  private int valueFields;
  private Table table;
  private TableFiles files;

  /** The version that the table is; -1 while it is none. */
  private long loaded = -1;

  /** The store that was opened last, until it is done. */
  private Store last;

  private boolean isClosed;

  @Override
  public void init(
      StateStoreId itsId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keyEncoder,
      boolean useColumnFamilies,
      StateStoreConf itsSettings,
      Configuration itsHadoop,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
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

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  @Override
  public synchronized StateStore getStore(
      long version, Option<String> uniqueId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    load(loadEmpty ? 0 : version);
    last = new Store(version);
    return claimed();
  }

  @Override
  public synchronized ReadStateStore getReadStore(long version, Option<String> uniqueId) {
    load(version);
    last = new Store(version);
    return last;
  }

  /** Returns the same store: a task goes on reading while it writes. */
  @Override
  public synchronized StateStore upgradeReadStoreToWriteStore(
      ReadStateStore read, long version, Option<String> uniqueId, boolean forceSnapshotOnCommit) {
    if (read != last) {
      throw taken(version);
    }
    return claimed();
  }

  private Store claimed() {
    last.isWriting = true;
    files.claim();
    return last;
  }

  /**
   * Makes the table that of a version. A state that cannot be read gets the error that Spark uses.
   */
  private void load(long version) {
    if (isClosed) {
      // It was closed after Spark had looked it up.
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
      String text = "[CANNOT_LOAD_STATE_STORE] " + id + ", version " + version + ": " + why;
      throw new UncheckedIOException(text, why);
    }
    loaded = version;
  }

  /** Removes files that are not needed any more. Spark calls it now and then, in its own thread. */
  @Override
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

  @Override
  public synchronized void close() {
    last = null;
    loaded = -1;
    isClosed = true;
    table.close();
    files.close();
  }

  /** One version, opened to be read, or to be changed and committed as the next one. */
  private final class Store implements StateStore {
    private final long version;
    private boolean isWriting;
    private boolean isChanged;
    private boolean isCommitted;

    Store(long version) {
      this.version = version;
    }

    @Override
    public StateStoreId id() {
      return id;
    }

    @Override
    public long version() {
      return version;
    }

    @Override
    public UnsafeRow get(UnsafeRow key, String family) {
      synchronized (TableStores.this) {
        check();
        byte[] found = table.get(key);
        return found == null ? null : row(found, valueFields);
      }
    }

    @Override
    public void put(UnsafeRow key, UnsafeRow value, String family) {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        table.put(key, value);
      }
    }

    @Override
    public void remove(UnsafeRow key, String family) {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        table.remove(key);
      }
    }

    @Override
    public StateStoreIterator<UnsafeRowPair> iterator(String family) {
      synchronized (TableStores.this) {
        check();
        return new StateStoreIterator<>(
            new Rows(this), StateStoreIterator$.MODULE$.$lessinit$greater$default$2());
      }
    }

    @Override
    public long commit() {
      synchronized (TableStores.this) {
        check();
        isChanged = true;
        try {
          files.save(table, version + 1);
          table.committed();
        } catch (IOException why) {
          String text = id + ", version " + (version + 1) + " cannot be written: " + why;
          throw new UncheckedIOException(text, why);
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

    /** Ends this store. Where it changed the table, the table is read again from its files. */
    @Override
    public void abort() {
      synchronized (TableStores.this) {
        if (last == this) {
          loaded = isChanged ? -1 : loaded;
          last = null;
        }
      }
    }

    /** Ends a store that only reads; a writer commits or aborts. */
    @Override
    public void release() {
      if (!isWriting) {
        abort();
      }
    }

    @Override
    public boolean hasCommitted() {
      return isCommitted;
    }

    @Override
    public StateStoreMetrics metrics() {
      synchronized (TableStores.this) {
        return new StateStoreMetrics(
            table.size(), table.reserved(), Map$.MODULE$.empty(), Map$.MODULE$.empty());
      }
    }

    @Override
    public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
      return new StateStoreCheckpointInfo(
          id.partitionId(), version + 1, Option.empty(), Option.empty());
    }

    @Override
    public Set<String> allColumnFamilyNames() {
      return Set$.MODULE$.empty();
    }

    @Override
    public boolean removeColFamilyIfExists(String family) {
      throw unsupported();
    }

    @Override
    public void createColFamilyIfAbsent(
        String family,
        StructType key,
        StructType value,
        KeyStateEncoderSpec encoder,
        boolean useMultipleValuesPerKey,
        boolean isInternal) {
      throw unsupported();
    }

    @Override
    public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
      throw unsupported();
    }

    @Override
    public void merge(UnsafeRow key, UnsafeRow value, String family) {
      throw unsupported();
    }

    @Override
    public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
      throw unsupported();
    }

    @Override
    public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
      throw unsupported();
    }

    @Override
    public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
      throw unsupported();
    }

    @Override
    public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
        UnsafeRow prefix, String family) {
      throw unsupported();
    }

    @Override
    public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
      throw unsupported();
    }

    private void check() {
      if (last != this) {
        throw taken(version);
      }
    }
  }

  private RuntimeException taken(long version) {
    return new CancellationException(
        id + ", version " + version + ": another task has the state now");
  }

  private static RuntimeException unsupported() {
    return new UnsupportedOperationException("this store is for aggregations");
  }

  private static UnsafeRow row(byte[] bytes, int fields) {
    UnsafeRow made = new UnsafeRow(fields);
    made.pointTo(bytes, bytes.length);
    return made;
  }

  /** All rows. Each is overwritten by the next one; a value is unpacked where it is asked for. */
  private final class Rows extends AbstractIterator<UnsafeRowPair> {
    private final Store store;
    private final Table.Walk walk = table.walk();
    private final Pair pair = new Pair();
    private byte[] key = new byte[256];
    private boolean isAhead;
    private boolean isOver;

    Rows(Store store) {
      this.store = store;
    }

    @Override
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

    @Override
    public UnsafeRowPair next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
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

      @Override
      public UnsafeRow key() {
        return itsKey;
      }

      @Override
      public UnsafeRow value() {
        synchronized (TableStores.this) {
          store.check();
          byte[] found = walk.value();
          return row(found, valueFields);
        }
      }
    }
  }
}
