package edgewake;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A growing text of bytes. It writes numbers as finish.py does: as Python's repr, or sums with 15
 * digits.
 */
public final class Numbers {
  /** Whole numbers up to this one are exact in a double. */
  private static final double EXACT = 9007199254740992.0;

  /** The same as finish.ROUNDED_MAX. */
  private static final double ROUNDED_MAX = 1.79769313486231e308;

  /** Digits of a sum, finish.NUMBER_DIGITS. A double keeps any decimal number of so many digits. */
  private static final int DIGITS = 15;

  private static final int DIGITS_MAX = 17;
  private static final long DIGITS_END = 1000000000000000L;
  private static final double LEAST = 1e-4;

  /**
   * Python writes an exponent from these on, for sums and for other numbers, and below the last.
   */
  private static final int EXPONENT_OF_SUMS = 15;

  private static final int EXPONENT = 16;
  private static final int EXPONENT_LEAST = -4;
  private static final int NUMBER_BYTES_MAX = 32;

  /** Powers of ten, all exact in a double. */
  private static final double[] TENS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20
  };

  private static final byte[] NULL = {'n', 'u', 'l', 'l'};

  private byte[] bytes = new byte[512];
  private int end;
  private final byte[] digits = new byte[NUMBER_BYTES_MAX];

  /** Begins a new text. */
  public void clear() {
    end = 0;
  }

  /** Returns the text so far. */
  public byte[] copy() {
    return Arrays.copyOf(bytes, end);
  }

  /** Appends a part of a text. */
  public void text(byte[] text, int from, int to) {
    room(to - from);
    System.arraycopy(text, from, bytes, end, to - from);
    end += to - from;
  }

  /** Appends a text. */
  public void text(byte[] text) {
    text(text, 0, text.length);
  }

  /** Appends null. */
  public void nothing() {
    text(NULL);
  }

  /** Appends a whole number. */
  public void whole(long number) {
    room(NUMBER_BYTES_MAX);
    if (number == Long.MIN_VALUE) {
      text(Long.toString(number).getBytes(StandardCharsets.US_ASCII));
      return;
    }
    if (number < 0) {
      bytes[end++] = '-';
    }
    padded(Math.abs(number), 1);
  }

  /** Appends a number with 15 digits, as finish.rounded does, or null where it is not finite. */
  public void sum(double number) {
    number(number, Math.abs(number) <= ROUNDED_MAX);
  }

  /**
   * Appends the shortest digits that are read as the same number, as repr does, or null where it is
   * not finite.
   */
  public void shortest(double number) {
    number(number, false);
  }

  private void number(double number, boolean isSum) {
    double size = Math.abs(number);
    if (!(size <= Double.MAX_VALUE)) {
      nothing();
      return;
    }
    room(NUMBER_BYTES_MAX);
    if (number < 0 || (number == 0 && 1 / number < 0)) {
      bytes[end++] = '-';
    }
    if (size < EXACT && size == (long) size) {
      padded((long) size, 1);
      bytes[end++] = '.';
      bytes[end++] = '0';
    } else if (size < LEAST || size >= TENS[DIGITS] || !common(size, isSum)) {
      rare(size, isSum);
    }
  }

  /**
   * Appends the first DIGITS digits of a number in [LEAST, 10^DIGITS). Returns false, and appends
   * nothing, where those are read as another number.
   */
  private boolean common(double size, boolean isSum) {
    int places = DIGITS - 1 - (int) Math.floor(Math.getExponent(size) * 0.30102999566398120);
    if (size * TENS[places] >= TENS[DIGITS]) {
      places--;
    }
    // The product is exactly high + low, so it is rounded as if all its digits were known.
    double high = size * TENS[places];
    double low = Math.fma(size, TENS[places], -high);
    long found = (long) high;
    double rest = (high - found) - 0.5;
    if (rest > -low || (rest == -low && (found & 1) == 1)) {
      found++;
    }
    if (found == DIGITS_END) {
      found /= 10;
      places--;
    }
    if (places < 0 || (!isSum && found / TENS[places] != size)) {
      return false;
    }
    long unit = (long) TENS[places];
    long fraction = found % unit;
    padded(found / unit, 1);
    if (fraction != 0) {
      while (fraction % 10 == 0) {
        fraction /= 10;
        places--;
      }
      bytes[end++] = '.';
      padded(fraction, places);
    }
    return true;
  }

  /** Appends any other number, slowly. */
  private void rare(double size, boolean isSum) {
    // The smallest doubles have fewer digits than others.
    int first = isSum || size >= Double.MIN_NORMAL ? DIGITS : 1;
    BigDecimal exact = new BigDecimal(size);
    BigDecimal found = exact.round(new MathContext(first, RoundingMode.HALF_EVEN));
    int count = first;
    while (!isSum && found.doubleValue() != size && count < DIGITS_MAX) {
      count++;
      found = exact.round(new MathContext(count, RoundingMode.HALF_EVEN));
      // Below a power of two doubles are closer together. There the nearest decimal number may be
      // read as another double, while its neighbour is read as this one.
      BigDecimal above = exact.round(new MathContext(count, RoundingMode.CEILING));
      if (found.doubleValue() != size && above.doubleValue() == size) {
        found = above;
      }
    }
    String text = found.stripTrailingZeros().unscaledValue().toString();
    int exponent = found.precision() - found.scale() - 1;
    int point = exponent + 1;
    StringBuilder made = new StringBuilder();
    if (exponent < EXPONENT_LEAST || exponent >= (isSum ? EXPONENT_OF_SUMS : EXPONENT)) {
      made.append(text.charAt(0));
      if (text.length() > 1) {
        made.append('.').append(text, 1, text.length());
      }
      int shown = Math.abs(exponent);
      made.append('e').append(exponent < 0 ? '-' : '+').append(shown < 10 ? "0" : "").append(shown);
    } else if (point <= 0) {
      made.append("0.");
      for (int i = point; i < 0; i++) {
        made.append('0');
      }
      made.append(text);
    } else if (text.length() <= point) {
      made.append(text);
      for (int i = text.length(); i < point; i++) {
        made.append('0');
      }
      made.append(isSum ? "" : ".0");
    } else {
      made.append(text, 0, point).append('.').append(text, point, text.length());
    }
    text(made.toString().getBytes(StandardCharsets.US_ASCII));
  }

  /** Appends a whole number, with zeros before it where it has fewer than `width` digits. */
  private void padded(long number, int width) {
    int at = digits.length;
    while (number > 0 || digits.length - at < width) {
      digits[--at] = (byte) ('0' + number % 10);
      number /= 10;
    }
    System.arraycopy(digits, at, bytes, end, digits.length - at);
    end += digits.length - at;
  }

  /** Makes room for so many more bytes. */
  private void room(int count) {
    if (bytes.length - end < count) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, end + count));
    }
  }
}
