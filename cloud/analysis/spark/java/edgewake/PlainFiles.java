package edgewake;

public class PlainFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
  public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission mode)
      throws java.io.IOException {
    java.nio.file.Files.setPosixFilePermissions(
        pathToFile(path).toPath(), java.nio.file.attribute.PosixFilePermissions.fromString(mode.toString().substring(0, 9)));
  }
}
