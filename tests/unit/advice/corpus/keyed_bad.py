"""Holdfast's keyed state without an end, with whole events."""
import holdfast as hf


class Regulars(hf.Keyed):
    visits = hf.value("long", default=0)
    history = hf.list("struct<drink: string, note: string>")
    spent = hf.value("string", default="0.0")

    def on_event(self, event, state, ctx):
        state.visits += 1
        state.history.append(event)
        state.spent = str(float(state.spent) + event.amount)
        yield {"customer": event.customer, "visits": state.visits}


@hf.job(name="regulars", checkpoint="/tmp/regulars", backend=hf.Memory())
def regulars(spark):
    orders = spark.readStream.table("orders")
    out = hf.keyed(orders, by="customer").process(Regulars(), output="customer string, visits long", name="r")
    return hf.sink(out).delta("tables/regulars")
