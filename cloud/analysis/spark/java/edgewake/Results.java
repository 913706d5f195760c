package edgewake;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * Rows of partials with the keys and texts of the results that they become (result_texts.py), where nothing but the row is needed for them. A text
 * ends before what only the driver knows: revision, finality, and the brace.
 */
public final class Results extends AbstractFunction1 implements Serializable {
  /** What a value is made of: a whole number, a double that was added up, another double, a sum and a count. */
  private static final int WHOLE = 0, SUM = 1, DOUBLE = 2, MEAN = 3;
  private static final byte[] START = ascii(",\"window_start\":"), END = ascii(",\"window_end\":"), COMMA = {','}, BRACKET = {'['}, CLOSE = {']'};

  private final int query, start, end, key;
  private final boolean isWhole;
  private final Map queries = new HashMap();

  /** @param plan as result_texts.plan writes it */
  public Results(String plan) throws Exception {
    JsonNode read = new ObjectMapper().readTree(plan);
    query = read.get("query").asInt();
    start = read.get("window_start").asInt();
    end = read.get("window_end").asInt();
    key = read.get("key").asInt();
    isWhole = read.get("is_whole").asBoolean();
    JsonNode each = read.get("queries");
    for (int i = 0; i < each.size(); i++) {
      JsonNode one = (JsonNode) each.get(i);
      queries.put(Long.valueOf(one.get("id").asLong()), new Query(one));
    }
  }

  /** Rows of a task. */
  public Object apply(Object rows) {
    return new Rows((Iterator) rows);
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  private static final class Query implements Serializable {
    final byte[] head;
    final byte[][] names;
    final int[] kinds, columns, counts;

    Query(JsonNode read) {
      head = read.get("head").asText().getBytes(StandardCharsets.UTF_8);
      JsonNode values = read.get("values");
      int count = values.size();
      names = new byte[count][];
      kinds = new int[count];
      columns = new int[count];
      counts = new int[count];
      for (int i = 0; i < count; i++) {
        JsonNode value = (JsonNode) values.get(i);
        names[i] = value.get("name").asText().getBytes(StandardCharsets.UTF_8);
        kinds[i] = value.get("kind").asInt();
        columns[i] = value.get("column").asInt();
        counts[i] = value.get("count").asInt();
      }
    }
  }

  private final class Rows extends AbstractIterator {
    private final Iterator rows;
    private final Numbers text = new Numbers();
    private final JoinedRow joined = new JoinedRow();
    private long last = -1;
    private Query of;

    Rows(Iterator rows) {
      this.rows = rows;
    }

    public boolean hasNext() {
      return rows.hasNext();
    }

    public Object next() {
      InternalRow row = (InternalRow) rows.next();
      long id = row.getLong(query);
      if (id != last) {
        of = (Query) queries.get(Long.valueOf(id));
        last = id;
      }
      byte[] group = row.getUTF8String(key).getBytes();
      byte[] itsKey = of == null ? null : keyOf(row, group), itsText = of == null ? null : textOf(row, group);
      if (isWhole) {
        return joined.apply(row, new GenericInternalRow(new Object[] {itsKey, itsText}));
      }
      Object[] few = {Long.valueOf(id), Long.valueOf(row.getLong(start)), Long.valueOf(row.getLong(end)), itsKey, itsText};
      return new GenericInternalRow(few);
    }

    private byte[] keyOf(InternalRow row, byte[] group) {
      text.clear();
      text.text(BRACKET);
      text.whole(row.getLong(start));
      text.text(COMMA);
      text.whole(row.getLong(end));
      text.text(COMMA);
      text.text(group);
      text.text(CLOSE);
      return text.copy();
    }

    private byte[] textOf(InternalRow row, byte[] group) {
      text.clear();
      text.text(of.head);
      text.text(START);
      text.whole(row.getLong(start));
      text.text(END);
      text.whole(row.getLong(end));
      if (group.length > 2) {
        text.text(COMMA);
        text.text(group, 1, group.length - 1);
      }
      for (int i = 0; i < of.kinds.length; i++) {
        text.text(of.names[i]);
        value(row, of.kinds[i], of.columns[i], of.counts[i]);
      }
      return text.copy();
    }

    private void value(InternalRow row, int kind, int column, int count) {
      if (row.isNullAt(column) || (kind == MEAN && row.getLong(count) == 0)) {
        text.nothing();
      } else if (kind == WHOLE) {
        text.whole(row.getLong(column));
      } else if (kind == SUM) {
        text.sum(row.getDouble(column));
      } else if (kind == MEAN) {
        text.sum(row.getDouble(column) / row.getLong(count));
      } else {
        text.shortest(row.getDouble(column));
      }
    }
  }
}
