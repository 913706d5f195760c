package edgewake;

public class Defaults {
  public void drop(org.apache.hadoop.conf.Configuration settings) {
    java.util.List names = new java.util.ArrayList();
    for (java.util.Iterator all = settings.iterator(); all.hasNext();) {
      String name = (String) ((java.util.Map.Entry) all.next()).getKey();
      if (name.startsWith("yarn.") || name.startsWith("mapreduce.") || name.startsWith("ipc.")) {
        String[] sources = settings.getPropertySources(name);
        if (sources != null && sources.length > 0 && sources[0].endsWith("-default.xml")) {
          names.add(name);
        }
      }
    }
    for (java.util.Iterator each = names.iterator(); each.hasNext();) {
      settings.unset((String) each.next());
    }
  }
}
