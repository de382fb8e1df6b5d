// The bench's view as a Kafka Streams program: four sources cogrouped by key, the same fields, the same identities.
// With -Dserve=PORT it answers GET /KEY from its own store (interactive queries), as JSON.
// Arguments: bootstrap servers, state folder, application id, then topic=schema file for crm, web, orders and pay.

import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.Executors;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

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

  static final Schema OUT = SchemaBuilder.record("bench").fields()
      .requiredString("name").requiredString("city").requiredString("segment").requiredString("page")
      .requiredLong("last_seen").requiredLong("visits").requiredLong("orders").requiredLong("open_orders")
      .requiredLong("ordered").requiredLong("paid").requiredLong("owes").endRecord();
  static final ThreadLocal<GenericDatumWriter<GenericRecord>> WRITER =
      ThreadLocal.withInitial(() -> new GenericDatumWriter<>(OUT));

  static byte[] encoded(Row row) { return Peer.encoded(shown(row), WRITER.get()); }

  static GenericRecord shown(Row row) {
    long open = row.orders.values().stream().filter(each -> each.text.equals("open")).count();
    long ordered = row.orders.values().stream().mapToLong(Entry::cents).sum();
    long paid = row.payments.values().stream().filter(each -> each.text.equals("captured")).mapToLong(Entry::cents).sum();
    return new GenericRecordBuilder(OUT).set("name", Peer.text(row.name)).set("city", Peer.text(row.city))
        .set("segment", Peer.text(row.segment)).set("page", Peer.text(row.page)).set("last_seen", row.webAt)
        .set("visits", row.visits).set("orders", (long) row.orders.size()).set("open_orders", open)
        .set("ordered", ordered).set("paid", paid).set("owes", ordered - paid).build();
  }

  static void serve(KafkaStreams streams, int port) throws IOException {
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 128);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext("/", asked -> {
      String key = asked.getRequestURI().getPath().substring(1);
      ReadOnlyKeyValueStore<String, Row> rows =
          streams.store(StoreQueryParameters.fromNameAndType("rows", QueryableStoreTypes.keyValueStore()));
      Row row = rows.get(key);
      byte[] body = row == null ? new byte[0]
          : ("{\"key\": \"" + key + "\", \"row\": " + shown(row) + "}").getBytes(StandardCharsets.UTF_8);
      asked.getResponseHeaders().set("Content-Type", "application/json");
      asked.sendResponseHeaders(row == null ? 404 : 200, row == null ? -1 : body.length);
      try (var out = asked.getResponseBody()) { out.write(body); }
    });
    server.start();
  }

  static Row folded(int source, GenericRecord event, Row row) {
    long at = (Long) event.get("at");
    switch (source) {
      case 0 -> {
        if (at >= row.crmAt) {
          row.crmAt = at; row.name = Peer.text(event.get("name")); row.city = Peer.text(event.get("city"));
          row.segment = Peer.text(event.get("segment"));
        }
      }
      case 1 -> {
        row.visits++;
        if (at >= row.webAt) { row.webAt = at; row.page = Peer.text(event.get("page")); }
      }
      default -> {
        var entries = source == 2 ? row.orders : row.payments;
        var entry = new Entry(at, (Long) event.get("cents"), Peer.text(event.get(source == 2 ? "status" : "kind")));
        entries.merge(Peer.text(event.get(source == 2 ? "order_id" : "event_id")), entry, (old, mine) -> mine.at >= old.at ? mine : old);
      }
    }
    return row;
  }

  public static void main(String[] given) throws Exception {
    var settings = Peer.settings(given[2], given[0], given[1]);

    var builder = new StreamsBuilder();
    CogroupedKStream<String, Row> all = null;
    for (int source = 0; source < 4; source++) {
      String[] pair = given[3 + source].split("=", 2);
      Schema schema = Peer.schema(pair[1]);
      var reader = Peer.reader(schema);
      int which = source;
      KGroupedStream<String, byte[]> events = builder.<String, byte[]>stream(pair[0]).groupByKey();
      Aggregator<String, byte[], Row> fold = (key, value, row) -> folded(which, Peer.decoded(value, reader), row);
      all = all == null ? events.cogroup(fold) : all.cogroup(events, fold);
    }
    all.aggregate(Row::new, Materialized.<String, Row, KeyValueStore<Bytes, byte[]>>as("rows")
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.serdeFrom(new RowWriter(), new RowReader())))
        .toStream().mapValues(CustomerView::encoded).to("peer.bench");
    String port = System.getProperty("serve");
    Peer.run(builder, settings, port == null ? streams -> {} : streams -> {
      try { serve(streams, Integer.parseInt(port)); } catch (IOException error) { throw new UncheckedIOException(error); }
    });
  }
}
