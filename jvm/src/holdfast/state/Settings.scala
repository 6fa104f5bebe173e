package holdfast.state

/** What a session says of an external database, in the settings that Spark hands to state stores. */
final class Settings(all: Map[String, String]) {
  import Settings.Prefix

  def get(name: String): Option[String] = all.get(Prefix + name).filter(_.nonEmpty)

  def needed(name: String): String =
    get(name).getOrElse(throw new ExternalStateException(s"the setting $Prefix$name is not set"))

  def long(name: String, otherwise: Long): Long = get(name).fold(otherwise)(number(name, _))

  def flag(name: String): Boolean = get(name).exists(_.equalsIgnoreCase("true"))

  def number(name: String, text: String): Long =
    text.toLongOption.getOrElse(
      throw new ExternalStateException(s"the setting $Prefix$name must be a whole number, not $text"))
}

object Settings {
  /** Spark hands on what begins like its own settings of state stores. */
  val Prefix = "spark.sql.streaming.stateStore.holdfast."
}
