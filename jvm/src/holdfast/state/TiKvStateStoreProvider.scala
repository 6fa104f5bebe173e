package holdfast.state

/** Keeps state in TiKV. */
final class TiKvStateStoreProvider extends ExternalStateStoreProvider {
  override protected def open(settings: Settings, store: String): VersionedTable =
    new TiKvTable(TiKvPlace.from(settings), store, settings.long("patienceMillis", 60000))

  override protected def place(settings: Settings): String = TiKvPlace.from(settings).toString
}
