// Flink SQL on a cluster within this process: each file's statements are run in turn, the last of a file is a job that
// is waited for. After each a line: the file's name, seconds, CPU seconds of the whole process meanwhile.
// Arguments: parallelism, folder of checkpoints, then files of statements that end with ";" at the end of a line.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.*;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.*;

public class SqlJobs {
  public static void main(String[] given) throws Exception {
    var machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    for (int file = 2; file < given.length; file++) {
      var settings = new Configuration();
      settings.setString("parallelism.default", given[0]);
      settings.setString("execution.checkpointing.interval", "10 s");
      settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
      settings.setString("execution.checkpointing.storage", "filesystem");  // in memory 5 MB of state are the most
      settings.setString("execution.checkpointing.dir", Path.of(given[1]).toUri().toString());
      settings.setString("restart-strategy.type", "disable");  // what fails is told, not tried for ever
      settings.setString("pipeline.object-reuse", "true");
      settings.setString("table.local-time-zone", "UTC");
      settings.setString("table.exec.mini-batch.enabled", "true");
      settings.setString("table.exec.mini-batch.allow-latency", "1 s");
      settings.setString("table.exec.mini-batch.size", "20000");
      var tables = TableEnvironment.create(
          EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(settings).build());
      String[] statements = Files.readString(Path.of(given[file])).split(";\\s*\n");
      long at = System.nanoTime(), cpu = machine.getProcessCpuTime();
      String said;
      try {
        for (int each = 0; each < statements.length - 1; each++) tables.executeSql(statements[each]);
        tables.executeSql(statements[statements.length - 1]).await();
        said = "done";
      } catch (Exception error) {
        Throwable cause = error;
        while (cause.getCause() != null) cause = cause.getCause();
        said = "failed: " + String.valueOf(cause.getMessage()).lines().findFirst().orElse(cause.toString());
      }
      System.out.printf("JOB\t%s\t%.3f\t%.3f\t%s%n", Path.of(given[file]).getFileName(), (System.nanoTime() - at) / 1e9,
          (machine.getProcessCpuTime() - cpu) / 1e9, said);
      System.out.flush();
    }
  }
}
