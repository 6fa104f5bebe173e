import java.io.IOException;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sends numbered events to a topic at a steady pace; exits with 0 once the broker has acknowledged all of them, and
 * at the end of standard input, which is the end of the process that started it.
 *
 * <p>Arguments: ADDRESS TOPIC KEYS FIRST COUNT RATE. A rate of 0 events a second sends without a pause. The user and
 * the amount of an event follow from its number, as in latency_events.py.
 */
public final class SteadyProducer {
  public static void main(String[] arguments) {
    String topic = arguments[1];
    long keys = Long.parseLong(arguments[2]);
    long first = Long.parseLong(arguments[3]);
    long count = Long.parseLong(arguments[4]);
    long rate = Long.parseLong(arguments[5]);
    Properties settings = new Properties();
    settings.put("bootstrap.servers", arguments[0]);
    settings.put("linger.ms", "0");
    settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    Thread parent = new Thread(SteadyProducer::endWithParent);
    parent.setDaemon(true);
    parent.start();
    AtomicReference<Exception> failure = new AtomicReference<>();
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
      producer.partitionsFor(topic); // creates the topic before the first event is timed
      long began = System.nanoTime();
      for (long sent = 0; sent < count && failure.get() == null; sent++) {
        if (rate > 0) {
          await(began + sent * 1_000_000_000L / rate);
        }
        producer.send(
            event(topic, keys, first + sent),
            (metadata, error) -> {
              if (error != null) {
                failure.compareAndSet(null, error);
              }
            });
      }
    }
    if (failure.get() != null) {
      throw new IllegalStateException(failure.get());
    }
  }

  private static ProducerRecord<String, String> event(String topic, long keys, long number) {
    long user = number % keys;
    double amount = (number * 7919 % 400 + 1) / 4.0;
    long now = System.currentTimeMillis();
    String value =
        String.format(Locale.ROOT, "{\"user\":%d,\"amount\":%.2f,\"sent\":%d}", user, amount, now);
    return new ProducerRecord<>(topic, null, now, Long.toString(user), value);
  }

  private static void endWithParent() {
    try {
      while (System.in.read() >= 0) {}
    } catch (IOException closed) {
      // as at its end
    }
    Runtime.getRuntime().halt(1);
  }

  private static void await(long deadline) {
    long left;
    while ((left = deadline - System.nanoTime()) > 0) {
      LockSupport.parkNanos(left);
    }
  }
}
