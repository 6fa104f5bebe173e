"""A processor of Spark that keeps whole rows for ever."""
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


class Baskets(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.items = handle.getListState("items", "sku string, name string, picture binary")
        self.total = handle.getValueState("total", "cents string")

    def handleInputRows(self, key, rows, timerValues):
        for pdf in rows:
            for row in pdf.itertuples(index=False):
                self.items.appendValue(tuple(row))
                before = self.total.get()[0] if self.total.exists() else "0"
                self.total.update((str(int(before) + row.cents),))
        yield pd.DataFrame({"basket": [key[0]]})

    def close(self) -> None:
        pass


baskets = spark.readStream.table("items").groupBy("basket").transformWithStateInPandas(
    Baskets(), "basket string", "Append", "None"
)
baskets.writeStream.option("checkpointLocation", "/chk/baskets").toTable("baskets")
