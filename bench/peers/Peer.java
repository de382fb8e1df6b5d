import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** What the Kafka Streams peers have in common: how they run, and Avro behind Confluent's five bytes. */
final class Peer {
  private Peer() {}

  static Properties settings(String id, String bootstrap, String folder) {
    var settings = new Properties();
    settings.put("application.id", id);
    settings.put("bootstrap.servers", bootstrap);
    settings.put("state.dir", folder);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "2");
    settings.put("auto.offset.reset", "earliest");
    settings.put("replication.factor", "1");
    settings.put("producer.compression.type", "lz4");
    settings.put("consumer.max.poll.records", "5000");
    settings.put("default.key.serde", Serdes.StringSerde.class);
    settings.put("default.value.serde", Serdes.ByteArraySerde.class);
    return settings;
  }

  static void run(StreamsBuilder builder, Properties settings) throws InterruptedException {
    run(builder, settings, streams -> {});
  }

  static void run(StreamsBuilder builder, Properties settings, Consumer<KafkaStreams> started) throws InterruptedException {
    var streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    started.accept(streams);
    Thread.currentThread().join();
  }

  static Schema schema(String file) throws IOException {
    return new Schema.Parser().parse(Files.readString(Path.of(file), StandardCharsets.UTF_8));
  }

  /** Readers are not thread-safe, and costly to make. */
  static ThreadLocal<GenericDatumReader<GenericRecord>> reader(Schema schema) {
    return ThreadLocal.withInitial(() -> new GenericDatumReader<>(schema));
  }

  static GenericRecord decoded(byte[] value, ThreadLocal<GenericDatumReader<GenericRecord>> reader) {
    try {
      return reader.get().read(null, DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null));
    } catch (IOException error) { throw new UncheckedIOException(error); }
  }

  static byte[] encoded(GenericRecord record, GenericDatumWriter<GenericRecord> writer) {
    try {
      var bytes = new ByteArrayOutputStream(128);
      bytes.write(new byte[5]);
      var encoder = EncoderFactory.get().binaryEncoder(bytes, null);
      writer.write(record, encoder);
      encoder.flush();
      return bytes.toByteArray();
    } catch (IOException error) { throw new UncheckedIOException(error); }
  }

  static String text(Object value) { return value == null ? "" : value.toString(); }
}
