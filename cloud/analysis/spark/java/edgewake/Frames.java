package edgewake;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads frames and sums them up, in one loop each. Spark's own expressions make an object of each
 * number, and ask their settings how to read a double.
 *
 * <p>Generated code calls it (frame_code.py), with values as Spark has them inside.
 */
public final class Frames {
  private static final String[] KEYS = {
    "device", "shift", "kept_at", "sent_at", "received_at", "t", "fields"
  };
  private static final int DEVICE = 0;
  private static final int T = 5;
  private static final int FIELDS = 6;

  /** A long holds any whole number of so many digits; longer ones are left to Spark. */
  private static final int DIGITS_MAX = 18;

  private static final int NUMBER_CHARS_MAX = 100;
  private static final int DEPTH_MAX = 32;

  /**
   * Whole numbers up to EXACT and these powers of ten are exact in a double, so that one division
   * or multiplication of them is rounded correctly (Clinger 1990).
   */
  private static final long EXACT = 1L << 53;

  private static final double[] TENS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22
  };

  /** The seed of Spark's xxhash64. */
  private static final long SEED = 42L;

  private final byte[] text;
  private int at;

  private Frames(byte[] text) {
    this.text = text;
  }

  /**
   * Returns a record (protocol/frames/record.py) as from_json gives it with the schema of
   * decode.py.
   * Returns null where its JSON is unusual: escaped names or texts, a value of another type, a name
   * twice, a number of more digits than a long has, anything that is no JSON.
   *
   * @param kinds a letter for each field: d (double), s (string) or b (boolean)
   */
  public static InternalRow read(byte[] json, ArrayData names, UTF8String kinds) {
    try {
      return new Frames(json).record(names, kinds.getBytes());
    } catch (Odd | ArrayIndexOutOfBoundsException unusual) {
      // Text that ends too early is read beyond the end of the array, which Java checks.
      return null;
    }
  }

  /**
   * Returns how many values there are, their sum, the least, the greatest, and whether none is
   * null. For null it returns 0, three nulls and true.
   */
  public static InternalRow sums(ArrayData values) {
    if (values == null) {
      return new GenericInternalRow(new Object[] {0L, null, null, null, true});
    }
    int count = values.numElements();
    double sum = 0;
    double least = Double.POSITIVE_INFINITY;
    double most = Double.NEGATIVE_INFINITY;
    for (int i = 0; i < count; i++) {
      if (values.isNullAt(i)) {
        return new GenericInternalRow(new Object[] {(long) count, null, null, null, false});
      }
      double value = values.getDouble(i);
      sum += value;
      if (value < least) {
        least = value;
      }
      if (value > most) {
        most = value;
      }
    }
    Double low = count == 0 ? null : Double.valueOf(least);
    Double high = count == 0 ? null : Double.valueOf(most);
    return new GenericInternalRow(new Object[] {(long) count, sum, low, high, true});
  }

  /**
   * Returns a sketch of the distinct numbers or texts, as hll_sketch_agg makes it of their
   * xxhash64; null for null.
   */
  public static byte[] different(ArrayData values, boolean areTexts, int log2Buckets) {
    if (values == null) {
      return null;
    }
    HllSketch sketch = new HllSketch(log2Buckets, TgtHllType.HLL_8);
    int count = values.numElements();
    for (int i = 0; i < count; i++) {
      if (!values.isNullAt(i)) {
        long hash =
            areTexts
                ? XXH64.hashUTF8String(values.getUTF8String(i), SEED)
                : hash(values.getDouble(i));
        sketch.update(hash);
      }
    }
    return sketch.toCompactByteArray();
  }

  private static long hash(double value) {
    return XXH64.hashLong(value == 0 ? 0L : Double.doubleToLongBits(value), SEED);
  }

  /** Returns how many distinct values two sketches have counted together. Either may be empty. */
  public static long differentIn(byte[] one, byte[] other) {
    HllSketch first = HllSketch.heapify(one);
    HllSketch second = HllSketch.heapify(other);
    if (first.isEmpty() || second.isEmpty()) {
      return Math.round((first.isEmpty() ? second : first).getEstimate());
    }
    Union both = new Union(first.getLgConfigK());
    both.update(first);
    both.update(second);
    return Math.round(both.getEstimate());
  }

  private InternalRow record(ArrayData names, byte[] kinds) {
    Object[] row = new Object[KEYS.length];
    int seen = 0;
    blanks();
    for (boolean more = opens('{', '}'); more; more = goesOn('}')) {
      int place = placeOf(key());
      if (place < 0) {
        skip(0);
        continue;
      }
      if ((seen & 1 << place) != 0) {
        throw ODD;
      }
      seen |= 1 << place;
      if (isNull()) {
        continue;
      }
      if (place == DEVICE) {
        row[place] = text();
      } else if (place == T) {
        row[place] = numbers(false);
      } else if (place == FIELDS) {
        row[place] = fields(names, kinds);
      } else {
        row[place] = whole();
      }
    }
    if (at < text.length) {
      throw ODD;
    }
    return new GenericInternalRow(row);
  }

  private InternalRow fields(ArrayData names, byte[] kinds) {
    Object[] row = new Object[Math.max(1, kinds.length)];
    long seen = 0;
    for (boolean more = opens('{', '}'); more; more = goesOn('}')) {
      UTF8String name = key();
      int place = kinds.length - 1;
      while (place >= 0 && !names.getUTF8String(place).equals(name)) {
        place--;
      }
      if (place < 0) {
        skip(1);
        continue;
      }
      if (place < 64) {
        if ((seen & 1L << place) != 0) {
          throw ODD;
        }
        seen |= 1L << place;
      } else if (row[place] != null) {
        throw ODD;
      }
      if (isNull()) {
        continue;
      }
      if (kinds[place] == 'd') {
        row[place] = numbers(true);
      } else if (kinds[place] == 's') {
        row[place] = texts();
      } else {
        row[place] = truths();
      }
    }
    return new GenericInternalRow(row);
  }

  private static int placeOf(UTF8String key) {
    for (int i = 0; i < KEYS.length; i++) {
      if (NAMES[i].equals(key)) {
        return i;
      }
    }
    return -1;
  }

  /** Reads an array of doubles or of whole numbers, some of which may be null. */
  private ArrayData numbers(boolean areDoubles) {
    int count = countTo(']');
    int head = 1 + (count + 63) / 64;
    // UnsafeArrayData has the count, then a bit for each null, then the values.
    long[] data = new long[head + count];
    data[0] = count;
    int i = 0;
    for (boolean more = opens('[', ']'); more; more = goesOn(']')) {
      if (isNull()) {
        data[1 + i / 64] |= 1L << i;
      } else {
        data[head + i] = areDoubles ? Double.doubleToRawLongBits(number()) : whole();
      }
      i++;
    }
    UnsafeArrayData made = new UnsafeArrayData();
    made.pointTo(data, Platform.LONG_ARRAY_OFFSET, data.length * 8);
    return made;
  }

  /** Reads an array of texts. */
  private ArrayData texts() {
    List<UTF8String> found = new ArrayList<>();
    for (boolean more = opens('[', ']'); more; more = goesOn(']')) {
      found.add(isNull() ? null : text());
    }
    return new GenericArrayData(found.toArray());
  }

  /** Reads an array of booleans. */
  private ArrayData truths() {
    Object[] found = new Object[countTo(']')];
    int i = 0;
    for (boolean more = opens('[', ']'); more; more = goesOn(']')) {
      if (!isNull()) {
        boolean isTrue = text[at] == 't';
        word(isTrue ? "true" : "false");
        found[i] = isTrue;
      }
      i++;
    }
    return new GenericArrayData(found);
  }

  /** Counts the values of the array that begins here; none may be a text, an array or an object. */
  private int countTo(char end) {
    int count = 0;
    boolean isEmpty = true;
    for (int i = at + 1; text[i] != end; i++) {
      byte each = text[i];
      if (each == ',') {
        count++;
      } else if (each == '"' || each == '[' || each == '{') {
        throw ODD;
      } else if (each > ' ') {
        isEmpty = false;
      }
    }
    return isEmpty && count == 0 ? 0 : count + 1;
  }

  private long whole() {
    boolean isNegative = text[at] == '-';
    if (isNegative) {
      at++;
    }
    int begin = at;
    long value = digits(0L);
    if (at - begin > DIGITS_MAX || isFraction() || isExponent()) {
      throw ODD;
    }
    return isNegative ? -value : value;
  }

  private double number() {
    int begin = at;
    boolean isNegative = text[at] == '-';
    if (isNegative) {
      at++;
    }
    int first = at;
    long value = digits(0L);
    int digits = at - first;
    int tens = 0;
    boolean isWhole = true;
    if (isFraction()) {
      int point = at++;
      value = more(value);
      tens = point + 1 - at;
      digits -= tens;
      isWhole = false;
    }
    if (isExponent()) {
      tens += exponent();
      isWhole = false;
    }
    boolean isOddWhole = digits > DIGITS_MAX || (isNegative && value == 0);
    if (at - begin > NUMBER_CHARS_MAX || (isWhole && isOddWhole)) {
      throw ODD;
    }
    double made;
    if (digits <= DIGITS_MAX && value <= EXACT && tens >= -22 && tens <= 22) {
      made = tens < 0 ? value / TENS[-tens] : value * TENS[tens];
    } else if (isWhole) {
      made = value;
    } else {
      return Double.parseDouble(new String(text, begin, at - begin, StandardCharsets.ISO_8859_1));
    }
    return isNegative ? -made : made;
  }

  private int exponent() {
    at++;
    boolean isNegative = text[at] == '-';
    if (isNegative || text[at] == '+') {
      at++;
    }
    int begin = at;
    long value = more(0L);
    if (at - begin > 6) {
      throw ODD;
    }
    return (int) (isNegative ? -value : value);
  }

  /** Reads a whole number without a sign; only 0 begins with 0. */
  private long digits(long before) {
    int begin = at;
    long value = more(before);
    if (text[begin] == '0' && at - begin > 1) {
      throw ODD;
    }
    return value;
  }

  /** Reads at least one digit. The result is meaningless where there are more than DIGITS_MAX. */
  private long more(long before) {
    long value = before;
    int begin = at;
    while (at < text.length && text[at] >= '0' && text[at] <= '9') {
      value = value * 10 + (text[at] - '0');
      at++;
    }
    if (at == begin) {
      throw ODD;
    }
    return value;
  }

  private boolean isFraction() {
    return at < text.length && text[at] == '.';
  }

  private boolean isExponent() {
    return at < text.length && (text[at] == 'e' || text[at] == 'E');
  }

  private UTF8String text() {
    if (text[at] != '"') {
      throw ODD;
    }
    int begin = at + 1;
    if (string()) {
      throw ODD;
    }
    return UTF8String.fromBytes(text, begin, at - 1 - begin);
  }

  /** Skips a text. Returns whether it has escapes. */
  private boolean string() {
    boolean isEscaped = false;
    byte each;
    while ((each = text[++at]) != '"') {
      if (each == '\\') {
        isEscaped = true;
        if ("\"\\/bfnrtu".indexOf(text[++at]) < 0) {
          throw ODD;
        }
      } else if (each >= 0 && each < ' ') {
        throw ODD;
      }
    }
    at++;
    return isEscaped;
  }

  /** Reads a name and skips its colon. */
  private UTF8String key() {
    UTF8String name = text();
    blanks();
    pass(':');
    blanks();
    return name;
  }

  /** Skips a null, if one begins here. */
  private boolean isNull() {
    if (text[at] != 'n') {
      return false;
    }
    word("null");
    return true;
  }

  private void word(String expected) {
    for (int i = 0; i < expected.length(); i++) {
      pass(expected.charAt(i));
    }
  }

  private void pass(char expected) {
    if (text[at++] != expected) {
      throw ODD;
    }
  }

  /** Skips any value. */
  private void skip(int depth) {
    byte first = text[at];
    if (first == '"') {
      string();
    } else if (first == '[' || first == '{') {
      if (depth == DEPTH_MAX) {
        throw ODD;
      }
      char end = first == '[' ? ']' : '}';
      for (boolean more = opens((char) first, end); more; more = goesOn(end)) {
        if (first == '{') {
          key();
        }
        skip(depth + 1);
      }
    } else if (first == 't' || first == 'f') {
      word(first == 't' ? "true" : "false");
    } else if (!isNull()) {
      passNumber();
    }
  }

  private void passNumber() {
    if (text[at] == '-') {
      at++;
    }
    digits(0L);
    if (isFraction()) {
      at++;
      more(0L);
    }
    if (isExponent()) {
      exponent();
    }
  }

  /**
   * Skips the beginning of an object or array. Returns whether anything is in it; if nothing is,
   * its end is skipped, too.
   */
  private boolean opens(char begin, char end) {
    pass(begin);
    blanks();
    if (text[at] != end) {
      return true;
    }
    at++;
    blanks();
    return false;
  }

  /** Skips what follows a value. Returns whether that is another value. */
  private boolean goesOn(char end) {
    blanks();
    byte each = text[at++];
    blanks();
    if (each != ',' && each != end) {
      throw ODD;
    }
    return each == ',';
  }

  private void blanks() {
    while (at < text.length
        && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) {
      at++;
    }
  }

  private static final UTF8String[] NAMES = new UTF8String[KEYS.length];

  static {
    for (int i = 0; i < KEYS.length; i++) {
      NAMES[i] = UTF8String.fromString(KEYS[i]);
    }
  }

  /** Thrown where JSON is left to Spark. It has no stack trace, so one instance is enough. */
  private static final class Odd extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Odd() {
      super(null, null, false, false);
    }
  }

  private static final Odd ODD = new Odd();
}
