package holdfast.state

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

/**
 * Notes in the database which batch of a query was committed last, for services that read its state.
 *
 * Stores know that a batch is over only when the next one begins. A note that fails is made up for by the next:
 * until then readers see the batch before.
 */
final class CommittedBatches extends StreamingQueryListener with Logging {
  import CommittedBatches.Provider

  private var connected: Option[(RedisPlace, RedisTable)] = None

  override def onQueryStarted(event: QueryStartedEvent): Unit = ()
  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = ()

  override def onQueryProgress(event: QueryProgressEvent): Unit = {
    val progress = event.progress
    if (progress.stateOperators.nonEmpty) {
      try {
        for (settings <- settingsOf(progress.id)) {
          tableOf(settings).noteBatch(
            s"${ExternalStateStoreProvider.prefix(settings)}:query:${progress.id}",
            progress.batchId,
            progress.runId.toString)
        }
      } catch {
        case NonFatal(error) =>
          logWarning(s"batch ${progress.batchId} could not be noted for readers of its state: ${error.getMessage}")
      }
    }
  }

  /** The settings of a query that keeps its state in Redis. */
  private def settingsOf(query: java.util.UUID): Option[Settings] =
    for {
      any <- SparkSession.getDefaultSession
      running <- Option(any.streams.get(query))
      conf = running.sparkSession.conf
      if conf.getOption(Provider).contains(classOf[RedisStateStoreProvider].getName)
    } yield new Settings(conf.getAll.filter { case (key, _) => key.startsWith(Settings.Prefix) })

  private def tableOf(settings: Settings): RedisTable = synchronized {
    val place = RedisPlace.from(settings)
    connected match {
      case Some((known, table)) if known.toString == place.toString => table
      case _ =>
        connected.foreach(_._2.close())
        // The events of all queries wait for it, so it asks once.
        val table = new RedisTable(place, "", patienceMillis = 0)
        connected = Some((place, table))
        table
    }
  }
}

private object CommittedBatches {
  private val Provider = "spark.sql.streaming.stateStore.providerClass"
}
