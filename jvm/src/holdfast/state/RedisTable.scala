package holdfast.state

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{List => JavaList}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import redis.clients.jedis.{DefaultJedisClientConfig, HostAndPort, Jedis, Pipeline, Response, SslOptions}
import redis.clients.jedis.exceptions.{JedisAccessControlException, JedisConnectionException, JedisDataException}
import redis.clients.jedis.exceptions.{JedisException, JedisNoScriptException}

/** Where a Redis is, and how to come in. Nothing prints the password. */
final class RedisPlace(
    val host: String,
    val port: Int,
    val database: Int,
    user: Option[String],
    password: Option[String],
    tls: Boolean,
    trustStore: Option[(String, Option[String])],
    answerMillis: Int) {

  def connect(): Jedis = {
    val config = DefaultJedisClientConfig.builder()
      .connectionTimeoutMillis(answerMillis)
      .socketTimeoutMillis(answerMillis)
      .database(database)
      .clientName("holdfast")
    user.foreach(config.user)
    password.foreach(config.password)
    if (tls) {
      val options = SslOptions.builder()
      trustStore.foreach {
        case (file, Some(word)) => options.truststore(new File(file), word.toCharArray)
        case (file, None) => options.truststore(new File(file))
      }
      config.sslOptions(options.build())
    }
    new Jedis(new HostAndPort(host, port), config.build())
  }

  override def toString: String = {
    val shown = if (host.contains(":")) s"[$host]" else host
    s"${if (tls) "rediss" else "redis"}://$shown:$port/$database"
  }
}

object RedisPlace {
  def from(settings: Settings): RedisPlace = {
    val address = settings.needed("redis.address")
    val (host, port) = address.lastIndexOf(':') match {
      case -1 => (address, 6379)
      case cut => (address.take(cut), settings.number("redis.address", address.drop(cut + 1)).toInt)
    }
    new RedisPlace(
      host.stripPrefix("[").stripSuffix("]"),
      port,
      settings.long("redis.database", 0).toInt,
      settings.get("redis.user"),
      settings.get("redis.password"),
      settings.flag("redis.tls"),
      settings.get("redis.trustStore").map(file => (file, settings.get("redis.trustStorePassword"))),
      settings.long("redis.answerMillis", 10000).toInt)
  }
}

/**
 * A store in Redis; [[RedisScripts]] says how it lies there.
 *
 * One connection, for one thread at a time. Where an answer does not come, nobody can know what has happened, so
 * the question is asked again on a new connection: every step may be taken twice.
 */
final class RedisTable(place: RedisPlace, name: String, patienceMillis: Long) extends VersionedTable {
  import RedisTable._
  import VersionedTable.{bucket, Buckets}

  private val head = bytes(name)
  private val heads = JavaList.of(head)
  private var connection: Jedis = _

  override def begin(version: Long, run: String): Attempt = synchronized {
    words(call(Begin, version.toString, run)) match {
      case Seq("begun", number, base) =>
        Attempt(number.toLong, version, base.toLong)
      case Seq("unfinished", plan) =>
        follow(plan)
        begin(version, run)
      case Seq("over", reached) =>
        throw refused(VersionedTable.passed(version, reached.toLong, VersionedTable.RestoreEarlier))
      case Seq("retired", later) =>
        throw refused(s"a later run of the query has taken over: $later")
      case why => throw absent(version, why)
    }
  }

  override def size(): Long = synchronized {
    asking(_.hget(head, bytes("fields"))) match {
      case null => 0L
      case text => string(text).toLong
    }
  }

  override def check(): Unit = synchronized {
    val now = asking(_.hmget(head, bytes("fields"), bytes("plan")))
    val fields = now.get(0)
    if (fields != null && now.get(1).isEmpty) {
      val found = pipelined(pipeline => (0 until Buckets).map(b => pipeline.hlen(bytes(s"$name:d:$b"))))
        .map(_.asInstanceOf[Long]).sum
      if (found != string(fields).toLong) {
        throw new ExternalStateException(
          s"state in $place is damaged: store $name has $found of ${string(fields)} fields. The others were " +
            "deleted outside Holdfast. Restore a savepoint")
      }
    }
    val memory = asking(_.info("memory"))
    val policy = "maxmemory_policy:([a-z-]+)".r.findFirstMatchIn(memory).map(_.group(1))
    policy.filter(_.startsWith("allkeys")).foreach { word =>
      throw new ExternalStateException(
        s"$place has maxmemory-policy $word, so Redis would delete state when its memory is full. " +
          "Run CONFIG SET maxmemory-policy noeviction, and set it in the configuration file")
    }
  }

  override def describe(names: Names, description: Map[String, String]): Unit = synchronized {
    val noted = description.map { case (word, text) => (bytes(word), bytes(text)) }.asJava
    pipelined { pipeline =>
      Seq(
        pipeline.hset(head, noted),
        pipeline.sadd(bytes(names.stores), head),
        pipeline.hset(bytes(names.query), bytes("generation"), bytes(names.generation)))
    }
  }

  override def noteBatch(query: String, batch: Long, run: String): Unit = synchronized {
    asking(_.hset(query, java.util.Map.of("batch", batch.toString, "run", run)))
  }

  override def read(version: Long, attempt: Option[Attempt], fields: Array[Array[Byte]]): Array[Array[Byte]] =
    synchronized {
      val found = new Array[Array[Byte]](fields.length)
      val places = fields.indices.groupBy(i => bucket(fields(i))).toSeq
      val calls = places.flatMap { case (b, all) => all.grouped(ReadTogether).map(some => (b, some)) }
      calls.grouped(PipelinedTogether).foreach { some =>
        val answers = scripts(Read, some.map { case (b, indices) =>
          Seq(version.toString, number(attempt), b.toString).map(bytes) ++ indices.map(fields)
        }, version)
        for (((_, indices), answer) <- some.zip(answers)) {
          val values = answer.asInstanceOf[JavaList[Array[Byte]]]
          for ((i, j) <- indices.zipWithIndex if j < values.size) found(i) = value(values.get(j))
        }
      }
      found
    }

  override def scan(version: Long, attempt: Option[Attempt]): Iterator[Entry] =
    (0 until Buckets).iterator.grouped(ScannedTogether).flatMap { some =>
      val answers = synchronized {
        scripts(Scan, some.map(b => Seq(version.toString, number(attempt), b.toString).map(bytes)), version)
      }
      answers.iterator.flatMap(answer => merged(answer.asInstanceOf[JavaList[JavaList[Array[Byte]]]]))
    }

  override def stage(attempt: Attempt, changes: Iterator[Entry]): Unit = synchronized {
    for (some <- changes.grouped(StagedTogether)) {
      pipelined { pipeline =>
        some.groupBy(entry => bucket(entry.field)).toSeq.map { case (b, entries) =>
          val values = new java.util.LinkedHashMap[Array[Byte], Array[Byte]](entries.size * 2)
          entries.foreach(entry => values.put(entry.field, stored(entry.value)))
          pipeline.hset(bytes(s"$name:r:${attempt.number}:$b"), values)
        }
      }
    }
  }

  override def commit(attempt: Attempt, run: String): Long = synchronized {
    words(call(Decide, attempt.number.toString, attempt.version.toString, attempt.base.toString, run)) match {
      case Seq("decided", plan) => follow(plan)
      case Seq("unfinished", plan) =>
        follow(plan)
        commit(attempt, run)
      case Seq("retired", later) =>
        throw refused(s"a later run of the query has taken over: $later")
      case Seq("over", reached) =>
        throw refused(s"the task is too late to commit version ${attempt.version + 1}: the query is at $reached")
      case Seq("discarded") =>
        throw refused(s"attempt ${attempt.number} was discarded earlier")
      case why => throw absent(attempt.version, why)
    }
  }

  override def discard(attempt: Attempt): Unit = synchronized {
    if (call(GiveUp, attempt.number.toString) == 1L) deleteForgotten(s":r:${attempt.number}:")
  }

  override def changes(version: Long): Iterator[Entry] = synchronized {
    val attempt = Option(asking(_.hget(bytes(s"$name:v"), bytes(version.toString))))
      .getOrElse(throw absent(version, Seq("missing", "another")))
    (0 until Buckets).iterator.flatMap { b =>
      val fields = asking(_.hkeys(bytes(s"$name:u:${string(attempt)}:$b"))).asScala.toArray
      fields.iterator.zip(read(version, None, fields).iterator).map { case (field, value) => Entry(field, value) }
    }
  }

  override def clean(retain: Int): Unit = synchronized {
    val forgotten = call(Forget, retain.toString).asInstanceOf[JavaList[Array[Byte]]].asScala.map(string)
    forgotten.foreach(deleteForgotten)
  }

  override def close(): Unit = synchronized {
    if (connection != null) connection.close()
    connection = null
  }

  /** Do what a commit has decided; whoever comes first does it, and doing it twice changes nothing. */
  private def follow(plan: String): Long = {
    if (plan.nonEmpty) {
      (0 until Buckets).grouped(FollowedTogether).foreach { some =>
        scripts(Follow, some.map(b => Seq(bytes(plan), bytes(b.toString))), -1)
      }
    }
    string(call(Finish, plan).asInstanceOf[Array[Byte]]).toLong
  }

  private def deleteForgotten(hashes: String): Unit = {
    asking(_.unlink((0 until Buckets).map(b => bytes(s"$name$hashes$b")): _*))
    asking(_.hdel(bytes(s"$name:g"), bytes(hashes)))
  }

  private def call(script: Script, arguments: String*): Any =
    asking(_.evalsha(script.digest, heads, arguments.map(bytes).asJava))

  /** Run a script many times in one go. */
  private def scripts(script: Script, calls: Seq[Seq[Array[Byte]]], version: Long): Seq[Any] =
    try {
      pipelined(pipeline => calls.map(call => pipeline.evalsha(script.digest, heads, call.asJava)))
    } catch {
      case error: JedisDataException if error.getMessage.startsWith("HOLDFAST ") =>
        throw absent(version, error.getMessage.split(' ').toSeq.slice(1, 2) :+ "another")
    }

  private def pipelined(send: Pipeline => Seq[Response[_]]): Seq[Any] = asking { jedis =>
    val pipeline = new Pipeline(jedis)
    val answers = send(pipeline)
    pipeline.sync()
    answers.map(_.get())
  }

  /** Ask, and ask again on a new connection where no answer comes, for as long as patience lasts. */
  private def asking[T](question: Jedis => T): T = times.measure(askUntilAnswered(question))

  private def askUntilAnswered[T](question: Jedis => T): T = {
    val giveUp = System.nanoTime() + patienceMillis * 1000000L
    var pause = 50L
    while (true) {
      try {
        if (connection == null) connection = place.connect()
        return question(connection)
      } catch {
        case _: JedisNoScriptException =>
          Scripts.foreach(script => connection.scriptLoad(script.text))
        case error: JedisException if passes(error) =>
          close()
          if (System.nanoTime() > giveUp) {
            throw new ExternalStateException(
              s"$place did not answer for ${patienceMillis / 1000} s: ${error.getMessage}. The last request may or " +
                "may not have taken effect; the batch can run again. Check that the database runs and is reachable",
              error)
          }
          Thread.sleep(pause)
          pause = math.min(pause * 2, 1000L)
        case error: JedisDataException if error.getMessage.startsWith("NOAUTH") =>
          throw new ExternalStateException(
            s"$place requires a password. Set HOLDFAST_REDIS_PASSWORD " +
              "in the driver's environment, or pass hf.Redis(password=...)")
        case error: JedisAccessControlException =>
          throw new ExternalStateException(s"$place rejected the user or the password: ${error.getMessage}. Check both")
        case error: JedisDataException if error.getMessage.startsWith("OOM ") =>
          throw new ExternalStateException(
            s"$place is out of memory, so the batch was not committed. Raise maxmemory, or shorten the TTL of the " +
              "state; the batch can run again", error)
      }
    }
    throw new IllegalStateException("the loop above has no end")
  }

  private def refused(why: String) =
    new ExternalStateException(s"$why. Store $name in $place is unchanged")

  private def absent(version: Long, why: Seq[String]) = why match {
    case Seq("missing", newest) =>
      new ExternalStateException(
        s"version $version of store $name is no longer in $place; the newest version is $newest. A batch can run " +
          "again only on one of the retained versions. Restore a savepoint")
    case _ =>
      new ExternalStateException(
        s"store $name is missing from $place, but the checkpoint is at version $version. Check the address; if " +
          "the database was emptied, recover its data or restore a savepoint")
  }
}

private object RedisTable {
  private val ReadTogether = 1000
  private val PipelinedTogether = 128
  private val ScannedTogether = 8
  private val StagedTogether = 20000
  private val FollowedTogether = 16

  private final class Script(source: String) {
    val text: Array[Byte] = bytes(source)
    val digest: Array[Byte] = bytes(
      java.security.MessageDigest.getInstance("SHA-1").digest(text).map(b => f"${b & 0xff}%02x").mkString)
  }

  private val Begin = new Script(RedisScripts.begin)
  private val Read = new Script(RedisScripts.read)
  private val Scan = new Script(RedisScripts.scan)
  private val Decide = new Script(RedisScripts.decide)
  private val GiveUp = new Script(RedisScripts.giveUp)
  private val Follow = new Script(RedisScripts.follow)
  private val Finish = new Script(RedisScripts.finish)
  private val Forget = new Script(RedisScripts.forget)
  private val Scripts = Seq(Begin, Read, Scan, Decide, GiveUp, Follow, Finish, Forget)

  private def bytes(text: String): Array[Byte] = text.getBytes(UTF_8)
  private def string(text: Array[Byte]): String = new String(text, UTF_8)
  private def number(attempt: Option[Attempt]): String = attempt.fold("")(_.number.toString)

  private def words(answer: Any): Seq[String] =
    answer.asInstanceOf[JavaList[Array[Byte]]].asScala.map(string).toSeq

  /** A value as it lies in a hash: a byte before it, so that nothing at all can say that there is none. */
  private def stored(value: Array[Byte]): Array[Byte] =
    if (value == null) Array.emptyByteArray
    else {
      val all = new Array[Byte](value.length + 1)
      all(0) = 1
      System.arraycopy(value, 0, all, 1, value.length)
      all
    }

  private def value(found: Array[Byte]): Array[Byte] =
    if (found == null || found.length == 0) null else java.util.Arrays.copyOfRange(found, 1, found.length)

  /** The fields of a bucket from the hashes that say something of it, of which the first counts. */
  private def merged(hashes: JavaList[JavaList[Array[Byte]]]): Iterator[Entry] = {
    def pairs(hash: JavaList[Array[Byte]]) =
      (0 until hash.size by 2).iterator.map(i => Entry(hash.get(i), value(hash.get(i + 1))))
    val over = hashes.asScala.init.filterNot(_.isEmpty)
    if (over.isEmpty) pairs(hashes.get(hashes.size - 1))
    else {
      val all = mutable.LinkedHashMap.empty[mutable.ArraySeq[Byte], Entry]
      for (hash <- over.iterator ++ Iterator(hashes.get(hashes.size - 1)); entry <- pairs(hash)) {
        val key = mutable.ArraySeq.make(entry.field)
        if (!all.contains(key)) all(key) = entry
      }
      all.valuesIterator.filter(_.value != null)
    }
  }

  /** Whether an error may be over in a moment: a connection that broke, a server that is starting. */
  private def passes(error: JedisException): Boolean = error match {
    case _: JedisConnectionException => true
    case data: JedisDataException =>
      Seq("LOADING", "BUSY ", "MASTERDOWN", "TRYAGAIN", "READONLY").exists(data.getMessage.startsWith)
    case _ => false
  }
}
