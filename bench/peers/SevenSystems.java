// The bench's view of seven systems as a Kafka Streams program, in either of the two ways that people write it:
// "cogroup": one row a customer in one store, into which all seven topics are folded;
// "join": a KTable a topic, folded by itself, and the seven joined by full outer joins, two at a time.
// Arguments: cogroup|join, bootstrap servers, state folder, application id, topic of the rows, schema file of the
// rows, then topic=schema file for crm, web, orders, pay, tickets, consent and loyalty.

import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.KeyValueStore;

public class SevenSystems {
  static final int SOURCES = 7, CRM = 0, WEB = 1, ORDERS = 2, PAY = 3, TICKETS = 4, CONSENT = 5, LOYALTY = 6;
  // Of each source: the columns whose latest values count, the identity of what an event is about (null: each event
  // is its own), and of every such thing the text and the number that are summed up.
  static final String[][] LATEST = {{"name", "city", "segment"}, {"page"}, {}, {}, {}, {"email", "sms"}, {"tier"}};
  static final String[] IDENTITY = {null, null, "order_id", "event_id", "ticket_id", null, "event_id"};
  static final String[] TEXT = {null, null, "status", "kind", "status", null, null};
  static final String[] NUMBER = {null, null, "cents", "cents", null, null, "points"};

  record Entry(long at, long number, String text) {}

  // What is known of a customer from one system.
  static final class Part {
    long at = Long.MIN_VALUE, latestAt = Long.MIN_VALUE, events;
    String[] latest = {};
    final Map<String, Entry> entries = new HashMap<>();

    void write(DataOutputStream out) throws IOException {
      out.writeLong(at); out.writeLong(latestAt); out.writeLong(events);
      out.writeByte(latest.length);
      for (String text : latest) out.writeUTF(text);
      out.writeInt(entries.size());
      for (var each : entries.entrySet()) {
        out.writeUTF(each.getKey()); out.writeLong(each.getValue().at); out.writeLong(each.getValue().number);
        out.writeUTF(each.getValue().text);
      }
    }

    static Part read(DataInputStream in) throws IOException {
      var part = new Part();
      part.at = in.readLong(); part.latestAt = in.readLong(); part.events = in.readLong();
      part.latest = new String[in.readByte()];
      for (int i = 0; i < part.latest.length; i++) part.latest[i] = in.readUTF();
      for (int left = in.readInt(); left > 0; left--)
        part.entries.put(in.readUTF(), new Entry(in.readLong(), in.readLong(), in.readUTF()));
      return part;
    }
  }

  // Rows are Part[SOURCES]; a system that said nothing is null. A part of its own is a row of one.
  static final class PartsWriter implements Serializer<Part[]> {
    @Override public byte[] serialize(String topic, Part[] row) {
      if (row == null) return null;
      try {
        var bytes = new ByteArrayOutputStream(256);
        var out = new DataOutputStream(bytes);
        out.writeByte(row.length);
        for (Part part : row) {
          out.writeBoolean(part != null);
          if (part != null) part.write(out);
        }
        return bytes.toByteArray();
      } catch (IOException error) { throw new UncheckedIOException(error); }
    }
  }

  static final class PartsReader implements Deserializer<Part[]> {
    @Override public Part[] deserialize(String topic, byte[] bytes) {
      if (bytes == null) return null;
      try {
        var in = new DataInputStream(new ByteArrayInputStream(bytes));
        var row = new Part[in.readByte()];
        for (int i = 0; i < row.length; i++) row[i] = in.readBoolean() ? Part.read(in) : null;
        return row;
      } catch (IOException error) { throw new UncheckedIOException(error); }
    }
  }

  static Materialized<String, Part[], KeyValueStore<Bytes, byte[]>> kept(String store) {
    return Materialized.<String, Part[], KeyValueStore<Bytes, byte[]>>as(store)
        .withKeySerde(Serdes.String()).withValueSerde(Serdes.serdeFrom(new PartsWriter(), new PartsReader()));
  }

  static Part folded(int source, GenericRecord event, Part before) {
    Part part = before == null ? new Part() : before;
    long at = (Long) event.get("at");
    part.at = Math.max(part.at, at);
    part.events++;
    if (LATEST[source].length > 0 && at >= part.latestAt) {
      part.latestAt = at;
      part.latest = new String[LATEST[source].length];
      for (int i = 0; i < part.latest.length; i++) part.latest[i] = Peer.text(event.get(LATEST[source][i]));
    }
    if (IDENTITY[source] != null) {
      long number = NUMBER[source] == null ? 0 : (Long) event.get(NUMBER[source]);
      var entry = new Entry(at, number, TEXT[source] == null ? "" : Peer.text(event.get(TEXT[source])));
      part.entries.merge(Peer.text(event.get(IDENTITY[source])), entry, (old, mine) -> mine.at >= old.at ? mine : old);
    }
    return part;
  }

  static String latest(Part part, int which) { return part == null || part.latest.length == 0 ? "" : part.latest[which]; }

  static long sum(Part part, String only) {
    return part == null ? 0 : part.entries.values().stream()
        .filter(each -> only == null || each.text.equals(only)).mapToLong(Entry::number).sum();
  }

  static long count(Part part, String only, boolean equal) {
    return part == null ? 0 : part.entries.values().stream().filter(each -> each.text.equals(only) == equal).count();
  }

  static byte[] encoded(Part[] row, Schema schema, GenericDatumWriter<GenericRecord> writer) {
    long ordered = sum(row[ORDERS], null), paid = sum(row[PAY], "captured");
    var record = new GenericRecordBuilder(schema)
        .set("name", latest(row[CRM], 0)).set("city", latest(row[CRM], 1)).set("segment", latest(row[CRM], 2))
        .set("page", latest(row[WEB], 0)).set("last_seen", row[WEB] == null ? 0L : row[WEB].at)
        .set("visits", row[WEB] == null ? 0L : row[WEB].events)
        .set("orders", row[ORDERS] == null ? 0L : (long) row[ORDERS].entries.size())
        .set("open_orders", count(row[ORDERS], "open", true)).set("ordered", ordered).set("paid", paid)
        .set("open_tickets", count(row[TICKETS], "closed", false))
        .set("email_consent", latest(row[CONSENT], 0).equals("true")).set("sms_consent", latest(row[CONSENT], 1).equals("true"))
        .set("points", sum(row[LOYALTY], null)).set("tier", latest(row[LOYALTY], 0)).set("owes", ordered - paid).build();
    return Peer.encoded(record, writer);
  }

  // The left side's row with one more system; a row is never changed in place, for another join may have it too.
  static Part[] joined(Part[] left, Part[] right, int width) {
    var row = left == null ? new Part[width + 1] : Arrays.copyOf(left, width + 1);
    row[width] = right == null ? null : right[0];
    return row;
  }

  public static void main(String[] given) throws Exception {
    var settings = Peer.settings(given[3], given[1], given[2]);

    Schema rows = Peer.schema(given[5]);
    ThreadLocal<GenericDatumWriter<GenericRecord>> writer = ThreadLocal.withInitial(() -> new GenericDatumWriter<>(rows));
    var builder = new StreamsBuilder();
    boolean cogroup = given[0].equals("cogroup");
    CogroupedKStream<String, Part[]> all = null;
    KTable<String, Part[]> table = null;
    for (int source = 0; source < SOURCES; source++) {
      String[] pair = given[6 + source].split("=", 2);
      Schema schema = Peer.schema(pair[1]);
      var reader = Peer.reader(schema);
      int which = source, slot = cogroup ? source : 0;
      KGroupedStream<String, byte[]> events = builder.<String, byte[]>stream(pair[0]).groupByKey();
      Aggregator<String, byte[], Part[]> fold = (key, value, row) -> {
        row[slot] = folded(which, Peer.decoded(value, reader), row[slot]);
        return row;
      };
      if (cogroup) all = all == null ? events.cogroup(fold) : all.cogroup(events, fold);
      else {
        KTable<String, Part[]> mine = events.aggregate(() -> new Part[1], fold, kept("system-" + source));
        table = table == null ? mine : table.outerJoin(mine, (left, right) -> joined(left, right, which));
      }
    }
    if (cogroup) table = all.aggregate(() -> new Part[SOURCES], kept("rows"));
    table.toStream().mapValues(row -> encoded(row, rows, writer.get())).to(given[4]);
    Peer.run(builder, settings);
  }
}
