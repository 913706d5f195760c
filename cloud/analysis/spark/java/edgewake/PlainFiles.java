package edgewake;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, whose modes Java sets. Hadoop itself starts `chmod` for each of them. */
public final class PlainFiles extends RawLocalFileSystem {
  /** A mode as text has nine letters; Hadoop adds a tenth to one with the sticky bit. */
  private static final int LETTERS = 9;

  @Override
  public void setPermission(Path path, FsPermission mode) throws IOException {
    String letters = mode.toString().substring(0, LETTERS);
    Files.setPosixFilePermissions(
        pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
  }
}
