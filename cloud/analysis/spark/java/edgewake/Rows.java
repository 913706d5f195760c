package edgewake;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/**
 * Makes Arrow messages of the rows of a micro-batch, without a plan of their own (batch_rows.py).
 */
public final class Rows {
  private Rows() {}

  /**
   * Returns the record batches of each partition, with at most `rowsMax` rows each. `results` makes
   * the texts of results first; it may be null.
   */
  public static RDD<byte[]> arrow(
      LogicalRDD batch, Results results, StructType schema, long rowsMax, String zone) {
    return batch
        .rdd()
        .mapPartitions(
            new ToArrow(results, schema, rowsMax, zone),
            false,
            ClassTag$.MODULE$.<byte[]>apply(byte[].class));
  }

  /** What a task does with its partition. */
  private static final class ToArrow
      extends AbstractFunction1<Iterator<InternalRow>, Iterator<byte[]>> implements Serializable {
    private static final long serialVersionUID = 1L;

    private final Results results;
    private final StructType schema;
    private final long rowsMax;
    private final String zone;

    ToArrow(Results results, StructType schema, long rowsMax, String zone) {
      this.results = results;
      this.schema = schema;
      this.rowsMax = rowsMax;
      this.zone = zone;
    }

    @Override
    public Iterator<byte[]> apply(Iterator<InternalRow> rows) {
      Iterator<InternalRow> made = results == null ? rows : results.apply(rows);
      return ArrowConverters$.MODULE$.toBatchIterator(
          made, schema, rowsMax, zone, true, false, TaskContext.get());
    }
  }
}
