package edgewake;

import java.io.Serializable;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.arrow.ArrowConverters$;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/** The rows of a micro-batch as messages of Arrow, without a plan of their own (batch_rows.py). */
public final class Rows {
  /** Of each partition its record batches, byte[], with so many rows at most. */
  public static RDD arrow(LogicalRDD batch, Results results, StructType schema, long rowsMax, String zone) {
    return batch.rdd().mapPartitions(new ToArrow(results, schema, rowsMax, zone), false, ClassTag$.MODULE$.apply(byte[].class));
  }

  /** Of a task. */
  public static final class ToArrow extends AbstractFunction1 implements Serializable {
    private final Results results;
    private final StructType schema;
    private final long rowsMax;
    private final String zone;

    public ToArrow(Results results, StructType schema, long rowsMax, String zone) {
      this.results = results;
      this.schema = schema;
      this.rowsMax = rowsMax;
      this.zone = zone;
    }

    public Object apply(Object rows) {
      Object made = results == null ? rows : results.apply(rows);
      return ArrowConverters$.MODULE$.toBatchIterator((Iterator) made, schema, rowsMax, zone, true, false, TaskContext.get());
    }
  }
}
