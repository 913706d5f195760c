package edgewake;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/** Removes Hadoop's defaults of parts that the analysis does not use (session.py says why). */
public final class Defaults {
  /** Unsets every default of YARN, of MapReduce and of Hadoop's RPC; what somebody set stays. */
  public void drop(Configuration settings) {
    List<String> names = new ArrayList<>();
    for (Map.Entry<String, String> setting : settings) {
      String name = setting.getKey();
      boolean isUnused =
          name.startsWith("yarn.") || name.startsWith("mapreduce.") || name.startsWith("ipc.");
      if (isUnused && isDefault(settings, name)) {
        names.add(name);
      }
    }
    for (String name : names) {
      settings.unset(name);
    }
  }

  private static boolean isDefault(Configuration settings, String name) {
    String[] sources = settings.getPropertySources(name);
    return sources != null && sources.length > 0 && sources[0].endsWith("-default.xml");
  }
}
