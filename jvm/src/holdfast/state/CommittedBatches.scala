package holdfast.state

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

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
  import CommittedBatches._

  private var connected: Option[Connection] = None

  // By run: a query that has ended is not found any more when its last batch is told.
  private val databases = new ConcurrentHashMap[UUID, (ExternalStateStoreProvider, Settings)]

  override def onQueryStarted(event: QueryStartedEvent): Unit =
    databaseOf(event.id).foreach(databases.put(event.runId, _))

  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = databases.remove(event.runId)

  override def onQueryProgress(event: QueryProgressEvent): Unit = {
    val progress = event.progress
    if (progress.stateOperators.nonEmpty) {
      try {
        for ((database, settings) <- Option(databases.get(progress.runId))) {
          tableOf(database, settings).noteBatch(
            s"${ExternalStateStoreProvider.prefix(settings)}:query:${progress.id}",
            progress.batchId,
            progress.runId.toString)
        }
      } catch {
        case NonFatal(error) =>
          logWarning(s"batch ${progress.batchId} could not be recorded for readers of its state: ${error.getMessage}")
      }
    }
  }

  /** Where a query keeps its state, if that is a database. */
  private def databaseOf(query: UUID): Option[(ExternalStateStoreProvider, Settings)] =
    for {
      any <- SparkSession.getDefaultSession
      running <- Option(any.streams.get(query))
      conf = running.sparkSession.conf
      name <- conf.getOption(Provider)
      provider <- external(name)
    } yield (provider, new Settings(conf.getAll.filter { case (key, _) => key.startsWith(Settings.Prefix) }))

  private def external(provider: String): Option[ExternalStateStoreProvider] =
    if (!provider.startsWith(getClass.getPackageName)) None
    else Some(Class.forName(provider).getConstructor().newInstance().asInstanceOf[ExternalStateStoreProvider])

  private def tableOf(database: ExternalStateStoreProvider, settings: Settings): VersionedTable = synchronized {
    val place = database.place(settings)
    if (!connected.exists(_.place == place)) {
      connected.foreach(_.table.close())
      connected = None
      // The events of all queries wait for it, so it asks once.
      connected = Some(Connection(place, database.open(settings, "", patienceMillis = 0)))
    }
    connected.get.table
  }
}

private object CommittedBatches {
  private val Provider = "spark.sql.streaming.stateStore.providerClass"

  private final case class Connection(place: String, table: VersionedTable)
}
