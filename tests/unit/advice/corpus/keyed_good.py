"""Holdfast's keyed state with an end."""
import holdfast as hf


class Regulars(hf.Keyed):
    visits = hf.value("long", default=0, ttl="24h")
    drinks = hf.map("string", "long", ttl="7d")
    spent = hf.reducing("double", hf.add, ttl="7d")

    def on_event(self, event, state, ctx):
        state.visits += 1
        state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
        state.spent.add(event.amount)
        yield {"customer": event.customer, "visits": state.visits}


@hf.job(name="regulars", checkpoint=hf.Checkpoint("checkpoints/regulars", retain=10), backend=hf.RocksDB())
def regulars(spark):
    orders = spark.readStream.table("orders")
    out = hf.keyed(orders, by="customer").process(Regulars(), output="customer string, visits long", name="r")
    return hf.sink(out).delta("tables/regulars")
