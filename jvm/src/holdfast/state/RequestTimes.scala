package holdfast.state

import java.util.concurrent.atomic.AtomicLongArray

import org.apache.spark.TaskContext

/**
 * Counts the requests that tasks send to a database, and how long they took, as a histogram.
 *
 * Requests that are sent together count as one. A request that is repeated because no answer came counts as one,
 * and takes from the first try to the answer. Requests of maintenance are not counted.
 */
private[state] final class RequestTimes {
  import RequestTimes._

  // A count for each bucket, and then all nanoseconds.
  private val counters = new AtomicLongArray(Buckets + 1)

  /** Measure a request, which counts once it is answered. */
  def measure[T](request: => T): T =
    if (TaskContext.get() == null) request
    else {
      val began = System.nanoTime()
      val answer = request
      add(System.nanoTime() - began)
      answer
    }

  private def add(nanos: Long): Unit = {
    counters.incrementAndGet(bucket(nanos))
    counters.addAndGet(Buckets, nanos)
  }

  /** The counters of all requests so far. */
  def total: RequestCounts = new RequestCounts(Array.tabulate(Buckets + 1)(counters.get))
}

/** Requests of a period: a count for each bucket of [[RequestTimes]], and then the nanoseconds they took. */
private[state] final class RequestCounts(private val counters: Array[Long]) {
  /** The requests since an earlier count. */
  def since(earlier: RequestCounts): RequestCounts =
    new RequestCounts(counters.zip(earlier.counters).map { case (now, before) => now - before })

  def inBucket(bucket: Int): Long = counters(bucket)
  def micros: Long = counters(counters.length - 1) / 1000
}

private[state] object RequestTimes {
  // Python computes quantiles from the same limits: formats/access_times.py. The last bucket has no limit.
  val LimitsMillis: Seq[Int] = Seq(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000)
  val Buckets: Int = LimitsMillis.size + 1
  val NoRequests = new RequestCounts(new Array[Long](Buckets + 1))
  private val limitsNanos = LimitsMillis.map(_ * 1000000L).toArray

  /** The bucket of a request: the first whose limit it does not exceed. */
  def bucket(nanos: Long): Int = {
    var i = 0
    while (i < limitsNanos.length && nanos > limitsNanos(i)) i += 1
    i
  }
}
