package edgewake;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.runtime.AbstractFunction1;

/**
 * Adds the keys and texts of results to the rows of partials that they are made of, where nothing
 * but the row is needed (result_texts.py). A text ends before what only the driver knows: revision,
 * finality and the brace.
 */
public final class Results extends AbstractFunction1<Iterator<InternalRow>, Iterator<InternalRow>>
    implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Kinds of values: a whole number, a sum of doubles, another double, a sum with its count. */
  private static final int WHOLE = 0;

  private static final int SUM = 1;
  private static final int MEAN = 3;
  private static final byte[] START = ascii(",\"window_start\":");
  private static final byte[] END = ascii(",\"window_end\":");
  private static final byte[] COMMA = {','};
  private static final byte[] BRACKET = {'['};
  private static final byte[] CLOSE = {']'};

  /** Columns. */
  private final int query;

  private final int start;
  private final int end;
  private final int key;
  private final boolean isWhole;
  private final HashMap<Long, Query> queries = new HashMap<>();

  /**
   * @param plan as result_texts.plan writes it; throws JsonProcessingException where it is no JSON
   */
  public Results(String plan) throws JsonProcessingException {
    JsonNode read = new ObjectMapper().readTree(plan);
    query = read.get("query").asInt();
    start = read.get("window_start").asInt();
    end = read.get("window_end").asInt();
    key = read.get("key").asInt();
    isWhole = read.get("is_whole").asBoolean();
    JsonNode each = read.get("queries");
    for (int i = 0; i < each.size(); i++) {
      JsonNode one = each.get(i);
      queries.put(one.get("id").asLong(), new Query(one));
    }
  }

  /** Returns the rows of a task with their keys and texts; null where a query has none. */
  @Override
  public Iterator<InternalRow> apply(Iterator<InternalRow> rows) {
    return new Rows(rows);
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }

  /** What the results of one query are made of. */
  private static final class Query implements Serializable {
    private static final long serialVersionUID = 1L;

    final byte[] head;
    final byte[][] names;
    final int[] kinds;
    final int[] columns;
    final int[] counts;

    Query(JsonNode read) {
      head = read.get("head").asText().getBytes(StandardCharsets.UTF_8);
      JsonNode values = read.get("values");
      int count = values.size();
      names = new byte[count][];
      kinds = new int[count];
      columns = new int[count];
      counts = new int[count];
      for (int i = 0; i < count; i++) {
        JsonNode value = values.get(i);
        names[i] = value.get("name").asText().getBytes(StandardCharsets.UTF_8);
        kinds[i] = value.get("kind").asInt();
        columns[i] = value.get("column").asInt();
        counts[i] = value.get("count").asInt();
      }
    }
  }

  private final class Rows extends AbstractIterator<InternalRow> {
    private final Iterator<InternalRow> rows;
    private final Numbers text = new Numbers();
    private final JoinedRow joined = new JoinedRow();
    private long last = -1;
    private Query of;

    Rows(Iterator<InternalRow> rows) {
      this.rows = rows;
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public InternalRow next() {
      InternalRow row = rows.next();
      long id = row.getLong(query);
      if (id != last) {
        of = queries.get(id);
        last = id;
      }
      byte[] group = row.getUTF8String(key).getBytes();
      byte[] itsKey = of == null ? null : keyOf(row, group);
      byte[] itsText = of == null ? null : textOf(row, group);
      if (isWhole) {
        return joined.apply(row, new GenericInternalRow(new Object[] {itsKey, itsText}));
      }
      Object[] few = {id, row.getLong(start), row.getLong(end), itsKey, itsText};
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
