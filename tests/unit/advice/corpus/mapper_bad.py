"""A processor that only maps."""
import holdfast as hf


class Cents(hf.Keyed):
    def on_event(self, event, state, ctx):
        yield {"customer": event.customer, "cents": int(event.amount * 100)}


@hf.job(name="cents", checkpoint="checkpoints/cents")
def cents(spark):
    out = hf.keyed(spark.readStream.table("orders"), by="customer").process(
        Cents(), output="customer string, cents long", name="cents"
    )
    return hf.sink(out).parquet("tables/cents")
