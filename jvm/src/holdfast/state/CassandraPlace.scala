package holdfast.state

import java.io.FileInputStream
import java.net.InetSocketAddress
import java.security.KeyStore
import java.time.Duration
import javax.net.ssl.{SSLContext, TrustManagerFactory}

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using

import com.datastax.oss.driver.api.core.{ConsistencyLevel, CqlSession, DefaultConsistencyLevel}
import com.datastax.oss.driver.api.core.config.{DefaultDriverOption, DriverConfigLoader}
import com.datastax.oss.driver.api.core.cql.{PreparedStatement, SimpleStatement}
import com.datastax.oss.driver.api.core.metadata.NodeState
import com.datastax.oss.driver.api.core.ssl.ProgrammaticSslEngineFactory

/** Where a Cassandra is, and how to come in. Nothing prints the password. */
final case class CassandraPlace(
    contactPoints: String,
    localDatacenter: Option[String],
    keyspace: String,
    user: Option[String],
    password: Option[String],
    tls: Boolean,
    trustStore: Option[(String, Option[String])],
    replication: Option[Int],
    consistency: String,
    answerMillis: Int) {

  private[state] val level: ConsistencyLevel = DefaultConsistencyLevel.valueOf(consistency)

  /** That of transactions: within the data center, or among all of them. */
  private[state] val serial: ConsistencyLevel =
    if (level == ConsistencyLevel.LOCAL_QUORUM) ConsistencyLevel.LOCAL_SERIAL else ConsistencyLevel.SERIAL

  /** A session of its own; it uses threads, so tables share it: see [[CassandraSessions]]. */
  private[state] def connect(): CqlSession = {
    val answer = Duration.ofMillis(answerMillis.toLong)
    val config = DriverConfigLoader.programmaticBuilder()
      .withString(DefaultDriverOption.SESSION_NAME, "holdfast")
      .withString(DefaultDriverOption.REQUEST_CONSISTENCY, level.name)
      .withString(DefaultDriverOption.REQUEST_SERIAL_CONSISTENCY, serial.name)
      .withBoolean(DefaultDriverOption.REQUEST_DEFAULT_IDEMPOTENCE, true)
      .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, answer)
      .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, answer)
      .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, answer)
      .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, answer)
      .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200))
      .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofSeconds(5))
      // An executor that ends must not wait for it.
      .withBoolean(DefaultDriverOption.NETTY_DAEMON, true)
      .withInt(DefaultDriverOption.NETTY_IO_SHUTDOWN_QUIET_PERIOD, 0)
      .withInt(DefaultDriverOption.NETTY_ADMIN_SHUTDOWN_QUIET_PERIOD, 0)
      // Enough to send each question to a node that has the answer.
      .withStringList(DefaultDriverOption.METADATA_SCHEMA_REFRESHED_KEYSPACES, java.util.List.of(keyspace))
    if (localDatacenter.isEmpty) {
      config.withString(DefaultDriverOption.LOAD_BALANCING_POLICY_CLASS, "DcInferringLoadBalancingPolicy")
    }
    val builder = CqlSession.builder()
      .withConfigLoader(config.build())
      .addContactPoints(addresses.asJava)
    localDatacenter.foreach(builder.withLocalDatacenter)
    for (name <- user; word <- password) builder.withAuthCredentials(name, word)
    if (tls) builder.withSslEngineFactory(new ProgrammaticSslEngineFactory(trusting(), null, true))
    builder.build()
  }

  private def addresses: Seq[InetSocketAddress] = contactPoints.split(',').toSeq.map(_.trim).map { point =>
    val (host, port) = point.lastIndexOf(':') match {
      case cut if cut < 0 || point.endsWith("]") => (point, "9042")
      case cut => (point.take(cut), point.drop(cut + 1))
    }
    new InetSocketAddress(host.stripPrefix("[").stripSuffix("]"), port.toIntOption.getOrElse(
      throw new ExternalStateException(s"the setting cassandra.contactPoints has an address without a port: $point")))
  }

  private def trusting(): SSLContext = trustStore match {
    case None => SSLContext.getDefault
    case Some((file, word)) =>
      val store = KeyStore.getInstance(KeyStore.getDefaultType)
      Using.resource(new FileInputStream(file))(store.load(_, word.map(_.toCharArray).orNull))
      val trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm)
      trust.init(store)
      val context = SSLContext.getInstance("TLS")
      context.init(null, trust.getTrustManagers, null)
      context
  }

  override def toString: String = s"cassandra://$contactPoints/$keyspace"
}

object CassandraPlace {
  private val Keyspace = "[a-z][a-z0-9_]{0,47}".r
  private val Levels = Set("LOCAL_QUORUM", "QUORUM")

  def from(settings: Settings): CassandraPlace = {
    val keyspace = settings.get("cassandra.keyspace").getOrElse("holdfast")
    val consistency = settings.get("cassandra.consistency").getOrElse("LOCAL_QUORUM")
    if (!Keyspace.matches(keyspace)) {
      throw new ExternalStateException(s"the setting cassandra.keyspace is not a lower-case name: $keyspace")
    }
    if (!Levels(consistency)) {
      throw new ExternalStateException(
        s"the setting cassandra.consistency must be ${Levels.mkString(" or ")}, not $consistency")
    }
    CassandraPlace(
      settings.needed("cassandra.contactPoints"),
      settings.get("cassandra.localDatacenter"),
      keyspace,
      settings.get("cassandra.user"),
      settings.get("cassandra.password"),
      settings.flag("cassandra.tls"),
      settings.get("cassandra.trustStore").map(file => (file, settings.get("cassandra.trustStorePassword"))),
      settings.get("cassandra.replication").map(settings.number("cassandra.replication", _).toInt),
      consistency,
      settings.long("cassandra.answerMillis", 10000).toInt)
  }
}

/**
 * The sessions of this executor: one for each place, which its tables share, and which ends with the last.
 */
private[state] object CassandraSessions {
  private final class Shared {
    var users = 0
    var session: CassandraSession = _
  }

  private val all = mutable.Map.empty[CassandraPlace, Shared]

  /** A session for one user more. */
  def take(place: CassandraPlace): CassandraSession = {
    val shared = all.synchronized {
      val found = all.getOrElseUpdate(place, new Shared)
      found.users += 1
      found
    }
    try shared.synchronized {
      if (shared.session == null) shared.session = new CassandraSession(place)
      shared.session
    } catch {
      case error: Throwable =>
        giveBack(place)
        throw error
    }
  }

  def giveBack(place: CassandraPlace): Unit = {
    val unused = all.synchronized {
      val shared = all(place)
      shared.users -= 1
      if (shared.users == 0) all.remove(place) else None
    }
    unused.foreach(shared => shared.synchronized(if (shared.session != null) shared.session.close()))
  }
}

/**
 * A session with the statements of all tables.
 *
 * The tables, in one keyspace:
 *
 *  - `state_head`: a row for each store, as [[CassandraHead]] has it.
 *  - `state_rows`: what attempts have written, a partition for each bucket. A row says which value a field
 *    has from this attempt on, or that it has none (`live`). Nothing replaces a row. `present` is set in
 *    every bucket before the store has a version, so that a bucket that was lost is not taken for an empty
 *    one.
 *  - `state_changes`: which fields an attempt has written, so that its rows are found when they are to be
 *    deleted. It is written before them.
 *  - `state_stores`: the stores of a query, for readers without a checkpoint. `facts` has Spark's JSON of the
 *    `keySchema` and `valueSchema`, the `encoder`, and the `layout`.
 *  - `state_queries`: the `batch_id` of a query that was committed last, its `run`, and the `generation` of the
 *    stores in use, as in Redis: see [[RedisScripts]].
 *
 * The timestamps of writes are no times: a row has the number of its attempt's step, and a deletion a greater
 * one. So no clock decides what counts, and a row that comes after its own deletion stays deleted.
 *
 * Deletions are forgotten after a day (`gc_grace_seconds`). With Cassandra's ten days a store that deletes a
 * lot would gather more of them than a read may meet. A node that was away for longer than a day has to be
 * rebuilt before it serves again, or what was deleted may come back.
 */
private[state] final class CassandraSession(place: CassandraPlace) extends AutoCloseable {
  import CassandraSession._

  val cql: CqlSession = place.connect()
  try prepareTables()
  catch {
    case error: Throwable =>
      cql.close()
      throw error
  }

  private val (heads, rows, changes) =
    (s"${place.keyspace}.state_head", s"${place.keyspace}.state_rows", s"${place.keyspace}.state_changes")
  private val queries = s"${place.keyspace}.state_queries"
  private val headColumns =
    "generation, run, retired, reached, next, versions, fields, open, dead, unfolded, undeleted"

  private val (ofBucket, ofField) = ("WHERE store = ? AND bucket = ?", "AND field IN ? AND attempt <= ?")

  val head = prepared(s"SELECT $headColumns FROM $heads WHERE store = ?")
  val makeHead = prepared(
    s"INSERT INTO $heads ($headColumns, store) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS")
  val changeHead = prepared(
    s"UPDATE $heads SET ${headColumns.split(", ").map(_ + " = ?").mkString(", ")} WHERE store = ? " +
      "IF generation = ?")
  val read = prepared(s"SELECT field, attempt, live, value FROM $rows $ofBucket $ofField")
  val readFields = prepared(s"SELECT field, attempt, live FROM $rows $ofBucket $ofField")
  val scan = prepared(s"SELECT field, attempt, live, value FROM $rows $ofBucket")
  val write = prepared(
    s"INSERT INTO $rows (store, bucket, field, attempt, live, value) VALUES (?, ?, ?, ?, ?, ?) " +
      "USING TIMESTAMP ?")
  val delete = prepared(
    s"DELETE FROM $rows USING TIMESTAMP $Deleted $ofBucket AND field = ? AND attempt = ?")
  val deleteUpTo = prepared(
    s"DELETE FROM $rows USING TIMESTAMP $Deleted $ofBucket AND field = ? AND attempt <= ?")
  val mark = prepared(s"UPDATE $rows USING TIMESTAMP 1 SET present = true $ofBucket")
  val marked = prepared(s"SELECT DISTINCT store, bucket, present FROM $rows $ofBucket")
  val note = prepared(
    s"INSERT INTO $changes (store, attempt, part, fields) VALUES (?, ?, ?, ?) USING TIMESTAMP 1")
  val noted = prepared(s"SELECT part, fields FROM $changes WHERE store = ? AND attempt = ?")
  val deleteNotes = prepared(
    s"DELETE FROM $changes USING TIMESTAMP $Deleted WHERE store = ? AND attempt = ? AND part <= ?")

  val describe = prepared(s"INSERT INTO ${place.keyspace}.state_stores (query, store, facts) VALUES (?, ?, ?)")
  val noteGeneration = prepared(s"UPDATE $queries SET generation = ? WHERE query = ?")
  val noteBatch = prepared(s"UPDATE $queries SET batch_id = ?, run = ? WHERE query = ?")

  override def close(): Unit = cql.close()

  private def prepared(text: String): PreparedStatement =
    try cql.prepare(text)
    catch {
      case error: Throwable =>
        cql.close()
        throw error
    }

  /** Make what is not there, and see that nothing in it ends by itself. */
  private def prepareTables(): Unit = {
    val keyspaces = cql.execute(
      "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", place.keyspace)
    if (keyspaces.one() == null) {
      val statement = place.replication match {
        case Some(copies) => keyspaceStatement(copies)
        case None =>
          throw new ExternalStateException(
            s"the keyspace ${place.keyspace} does not exist in $place. Run ${keyspaceStatement(3)}, with the number " +
              "of replicas that you need, or set cassandra.replication")
      }
      make(statement)
    }
    val found = cql.execute(
      "SELECT table_name, default_time_to_live FROM system_schema.tables WHERE keyspace_name = ?",
      place.keyspace)
      .asScala.map(row => row.getString(0) -> row.getInt(1)).toMap
    for ((name, columns) <- Tables) found.get(name) match {
      case None => make(s"CREATE TABLE IF NOT EXISTS ${place.keyspace}.$name $columns")
      case Some(0) =>
      case Some(seconds) =>
        throw new ExternalStateException(
          s"table $name in $place has a default TTL of $seconds s, so Cassandra would delete state. Run ALTER " +
            s"TABLE ${place.keyspace}.$name WITH default_time_to_live = 0")
    }
  }

  private def keyspaceStatement(copies: Int): String = {
    val center = place.localDatacenter.getOrElse(
      cql.getMetadata.getNodes.values.asScala.map(_.getDatacenter).find(_ != null).getOrElse("datacenter1"))
    s"CREATE KEYSPACE IF NOT EXISTS ${place.keyspace} WITH replication = " +
      s"{'class': 'NetworkTopologyStrategy', '${center.replace("'", "''")}': $copies}"
  }

  /**
   * Executors that begin together all do it. They ask the same node, which does one after the other: two
   * nodes could each make a table of that name, and what one of them has got would be lost.
   */
  private def make(statement: String): Unit = {
    val nodes = cql.getMetadata.getNodes.asScala.toSeq
    val node = nodes.filter(_._2.getState == NodeState.UP).minByOption(_._1).map(_._2)
    val simple = SimpleStatement.newInstance(statement)
    cql.execute(node.fold(simple)(simple.setNode))
  }
}

private object CassandraSession {
  /** Later than any step of an attempt. */
  private val Deleted = 1L << 50
  private val Grace = "gc_grace_seconds = 86400"

  private val Tables = Seq(
    "state_head" ->
      """(store text PRIMARY KEY, generation bigint, run text, retired frozen<list<text>>, reached bigint,
        | next bigint, versions frozen<map<bigint, bigint>>, fields frozen<map<bigint, bigint>>,
        | open frozen<set<bigint>>, dead frozen<map<bigint, bigint>>, unfolded frozen<set<bigint>>,
        | undeleted frozen<set<bigint>>)""".stripMargin,
    "state_rows" ->
      s"""(store text, bucket int, field blob, attempt bigint, live boolean, value blob,
         | present boolean static, PRIMARY KEY ((store, bucket), field, attempt))
         | WITH CLUSTERING ORDER BY (field ASC, attempt DESC)
         | AND compaction = {'class': 'LeveledCompactionStrategy'} AND $Grace""".stripMargin,
    "state_changes" ->
      s"""(store text, attempt bigint, part int, fields blob, PRIMARY KEY ((store, attempt), part))
         | WITH $Grace""".stripMargin,
    "state_stores" ->
      "(query text, store text, facts frozen<map<text, text>>, PRIMARY KEY (query, store))",
    "state_queries" -> "(query text PRIMARY KEY, batch_id bigint, run text, generation text)")
}
