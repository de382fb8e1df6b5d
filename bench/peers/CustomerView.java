// The bench's view as a Kafka Streams program: four sources cogrouped by key, the same fields, the same identities.
// Arguments: bootstrap servers, state folder, application id, then topic=schema file for crm, web, orders and pay.

import java.io.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;

public class CustomerView {
  record Entry(long at, long cents, String text) {}

  static final class Row {
    String name, city, segment, page;
    long crmAt = Long.MIN_VALUE, webAt = Long.MIN_VALUE, visits;
    final Map<String, Entry> orders = new HashMap<>(), payments = new HashMap<>();
  }

  static final class RowWriter implements Serializer<Row> {
    @Override public byte[] serialize(String topic, Row row) {
      if (row == null) return null;
      try {
        var bytes = new ByteArrayOutputStream(256);
        var out = new DataOutputStream(bytes);
        for (String text : new String[] {row.name, row.city, row.segment, row.page}) out.writeUTF(text == null ? "" : text);
        out.writeLong(row.crmAt); out.writeLong(row.webAt); out.writeLong(row.visits);
        for (var entries : List.of(row.orders, row.payments)) {
          out.writeInt(entries.size());
          for (var each : entries.entrySet()) {
            out.writeUTF(each.getKey()); out.writeLong(each.getValue().at); out.writeLong(each.getValue().cents);
            out.writeUTF(each.getValue().text);
          }
        }
        return bytes.toByteArray();
      } catch (IOException error) { throw new UncheckedIOException(error); }
    }
  }

  static final class RowReader implements Deserializer<Row> {
    @Override public Row deserialize(String topic, byte[] bytes) {
      if (bytes == null) return null;
      try {
        var in = new DataInputStream(new ByteArrayInputStream(bytes));
        var row = new Row();
        row.name = in.readUTF(); row.city = in.readUTF(); row.segment = in.readUTF(); row.page = in.readUTF();
        row.crmAt = in.readLong(); row.webAt = in.readLong(); row.visits = in.readLong();
        for (var entries : List.of(row.orders, row.payments))
          for (int left = in.readInt(); left > 0; left--)
            entries.put(in.readUTF(), new Entry(in.readLong(), in.readLong(), in.readUTF()));
        return row;
      } catch (IOException error) { throw new UncheckedIOException(error); }
    }
  }

  static GenericRecord decoded(byte[] value, ThreadLocal<GenericDatumReader<GenericRecord>> reader) {
    try {
      return reader.get().read(null, DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null));
    } catch (IOException error) { throw new UncheckedIOException(error); }
  }

  static final Schema OUT = SchemaBuilder.record("bench").fields()
      .requiredString("name").requiredString("city").requiredString("segment").requiredString("page")
      .requiredLong("last_seen").requiredLong("visits").requiredLong("orders").requiredLong("open_orders")
      .requiredLong("ordered").requiredLong("paid").requiredLong("owes").endRecord();
  static final ThreadLocal<GenericDatumWriter<GenericRecord>> WRITER =
      ThreadLocal.withInitial(() -> new GenericDatumWriter<>(OUT));

  static byte[] encoded(Row row) {
    long open = row.orders.values().stream().filter(each -> each.text.equals("open")).count();
    long ordered = row.orders.values().stream().mapToLong(Entry::cents).sum();
    long paid = row.payments.values().stream().filter(each -> each.text.equals("captured")).mapToLong(Entry::cents).sum();
    var record = new GenericRecordBuilder(OUT).set("name", text(row.name)).set("city", text(row.city))
        .set("segment", text(row.segment)).set("page", text(row.page)).set("last_seen", row.webAt)
        .set("visits", row.visits).set("orders", (long) row.orders.size()).set("open_orders", open)
        .set("ordered", ordered).set("paid", paid).set("owes", ordered - paid).build();
    try {
      var bytes = new ByteArrayOutputStream(128);
      bytes.write(new byte[5]);
      var encoder = EncoderFactory.get().binaryEncoder(bytes, null);
      WRITER.get().write(record, encoder);
      encoder.flush();
      return bytes.toByteArray();
    } catch (IOException error) { throw new UncheckedIOException(error); }
  }

  static String text(Object value) { return value == null ? "" : value.toString(); }

  static Row folded(int source, GenericRecord event, Row row) {
    long at = (Long) event.get("at");
    switch (source) {
      case 0 -> {
        if (at >= row.crmAt) {
          row.crmAt = at; row.name = text(event.get("name")); row.city = text(event.get("city"));
          row.segment = text(event.get("segment"));
        }
      }
      case 1 -> {
        row.visits++;
        if (at >= row.webAt) { row.webAt = at; row.page = text(event.get("page")); }
      }
      default -> {
        var entries = source == 2 ? row.orders : row.payments;
        var entry = new Entry(at, (Long) event.get("cents"), text(event.get(source == 2 ? "status" : "kind")));
        entries.merge(text(event.get(source == 2 ? "order_id" : "event_id")), entry, (old, mine) -> mine.at >= old.at ? mine : old);
      }
    }
    return row;
  }

  public static void main(String[] given) throws Exception {
    var settings = new Properties();
    settings.put("application.id", given[2]);
    settings.put("bootstrap.servers", given[0]);
    settings.put("state.dir", given[1]);
    settings.put("processing.guarantee", "exactly_once_v2");
    settings.put("num.stream.threads", "2");
    settings.put("auto.offset.reset", "earliest");
    settings.put("replication.factor", "1");
    settings.put("producer.compression.type", "lz4");
    settings.put("consumer.max.poll.records", "5000");
    settings.put("default.key.serde", Serdes.StringSerde.class);
    settings.put("default.value.serde", Serdes.ByteArraySerde.class);

    var builder = new StreamsBuilder();
    CogroupedKStream<String, Row> all = null;
    for (int source = 0; source < 4; source++) {
      String[] pair = given[3 + source].split("=", 2);
      Schema schema = new Schema.Parser().parse(Files.readString(Path.of(pair[1]), StandardCharsets.UTF_8));
      ThreadLocal<GenericDatumReader<GenericRecord>> reader = ThreadLocal.withInitial(() -> new GenericDatumReader<>(schema));
      int which = source;
      KGroupedStream<String, byte[]> events = builder.<String, byte[]>stream(pair[0]).groupByKey();
      Aggregator<String, byte[], Row> fold = (key, value, row) -> folded(which, decoded(value, reader), row);
      all = all == null ? events.cogroup(fold) : all.cogroup(events, fold);
    }
    all.aggregate(Row::new, Materialized.<String, Row, KeyValueStore<Bytes, byte[]>>as("rows")
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.serdeFrom(new RowWriter(), new RowReader())))
        .toStream().mapValues(CustomerView::encoded).to("peer.bench");
    var streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    Thread.currentThread().join();
  }
}
