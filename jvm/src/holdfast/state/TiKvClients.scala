package holdfast.state

import java.io.File

import scala.collection.mutable

import org.tikv.common.{TiConfiguration, TiSession}
import org.tikv.raw.RawKVClient

/** Where a TiKV cluster is: its PD, and the files for TLS, of the authority, the certificate and its key. */
final case class TiKvPlace(pd: String, tls: Seq[String], answerMillis: Int) {

  override def toString: String = s"tikv://$pd"
}

object TiKvPlace {
  def from(settings: Settings): TiKvPlace = TiKvPlace(
    settings.needed("tikv.pd"),
    if (settings.get("tikv.authority").isEmpty) Nil
    else Seq("authority", "certificate", "key").map(name => settings.needed(s"tikv.$name")),
    settings.long("tikv.answerMillis", 10000).toInt)
}

/** A client of a cluster. `swapping` is for keys that are compared and set, `plain` for all others. */
private[state] final class TiKvClient(place: TiKvPlace) {
  private val session = TiSession.create(configuration())
  val swapping: RawKVClient = { session.getConf.setEnableAtomicForCAS(true); session.createRawClient() }
  val plain: RawKVClient = { session.getConf.setEnableAtomicForCAS(false); session.createRawClient() }
  var users = 0

  def close(): Unit = session.close()

  private def configuration(): TiConfiguration = {
    val conf = TiConfiguration.createRawDefault(place.pd)
    conf.setTimeout(place.answerMillis)
    conf.setPdFirstGetMemberTimeout(place.answerMillis)
    conf.setRawKVReadTimeoutInMS(place.answerMillis)
    conf.setRawKVWriteTimeoutInMS(place.answerMillis)
    conf.setRawKVBatchReadTimeoutInMS(place.answerMillis)
    conf.setRawKVBatchWriteTimeoutInMS(place.answerMillis)
    conf.setRawKVScanTimeoutInMS(place.answerMillis)
    // A log of slow calls is written while other threads still add to it, and a call that was answered fails.
    conf.setRawKVReadSlowLogInMS(-1)
    conf.setRawKVWriteSlowLogInMS(-1)
    conf.setRawKVBatchReadSlowLogInMS(-1)
    conf.setRawKVBatchWriteSlowLogInMS(-1)
    conf.setRawKVScanSlowLogInMS(-1)
    conf.setBatchScanConcurrency(TiKvClients.ScansTogether)
    // The client warms up by writing to a key that is not ours.
    conf.setWarmUpEnable(false)
    conf.setEnableGrpcForward(false)
    place.tls match {
      case Seq(authority, certificate, key) =>
        place.tls.filterNot(file => new File(file).canRead).foreach { file =>
          throw new ExternalStateException(s"the file $file, which TLS to $place needs, cannot be read on this machine")
        }
        conf.setTlsEnable(true)
        conf.setTrustCertCollectionFile(authority)
        conf.setKeyCertChainFile(certificate)
        conf.setKeyFile(key)
      case _ => ()
    }
    conf
  }
}

/** The clients of this executor: one a cluster, for all stores, because each has connections and threads. */
private[state] object TiKvClients {
  val ScansTogether = 16
  private val clients = mutable.Map.empty[TiKvPlace, TiKvClient]

  def take(place: TiKvPlace): TiKvClient = synchronized {
    val client =
      try clients.getOrElseUpdate(place, new TiKvClient(place))
      catch {
        case error: IllegalArgumentException =>
          throw new ExternalStateException(
            s"$place cannot be used: ${error.getMessage}. Check the addresses and the TLS files", error)
      }
    client.users += 1
    client
  }

  def giveBack(place: TiKvPlace): Unit = synchronized {
    for (client <- clients.get(place)) {
      client.users -= 1
      if (client.users == 0) {
        clients.remove(place)
        client.close()
      }
    }
  }
}
