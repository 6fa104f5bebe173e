"""A processor of Spark that keeps what it needs, for a day."""
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

DAY_MS = 86_400_000


class Baskets(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.skus = handle.getListState("skus", "sku string", DAY_MS)
        self.total = handle.getValueState("total", "cents long", ttl_duration_ms=DAY_MS)

    def handleInputRows(self, key, rows, timerValues):
        for pdf in rows:
            for row in pdf.itertuples(index=False):
                self.skus.appendValue((row.sku,))
                before = self.total.get()[0] if self.total.exists() else 0
                self.total.update((before + row.cents,))
        yield pd.DataFrame({"basket": [key[0]]})

    def close(self) -> None:
        pass


baskets = spark.readStream.table("items").groupBy("basket").transformWithStateInPandas(
    Baskets(), "basket string", "Append", "ProcessingTime"
)
baskets.writeStream.option("checkpointLocation", "/chk/baskets").toTable("baskets")
