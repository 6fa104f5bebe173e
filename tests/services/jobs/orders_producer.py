"""Makes three topics, sends orders and payments until a file says "enough"; notes what was acknowledged.

The first argument is JSON: the broker, a seed, a folder which gets the file `enough`, the connector's jars.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

START = dt.datetime(2026, 3, 5, 8, tzinfo=dt.timezone.utc)
CUSTOMERS, AT_ONCE = 40, 20
TOPICS = ("orders", "payments", "paid")
_PAUSE_S = 0.2


def main(asked: dict[str, Any]) -> None:
    folder, rng = Path(asked["folder"]), random.Random(asked["seed"])
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars", asked["jars"]).getOrCreate()
    jvm: Any = spark._jvm
    settings = jvm.java.util.Properties()
    text = "org.apache.kafka.common.serialization.StringSerializer"
    for name, value in {
        "bootstrap.servers": asked["address"],
        "key.serializer": text,
        "value.serializer": text,
        "acks": "all",
        "enable.idempotence": "true",
    }.items():
        settings.setProperty(name, value)
    admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
    topics = jvm.java.util.ArrayList()
    for topic in TOPICS:
        topics.add(jvm.org.apache.kafka.clients.admin.NewTopic(topic, 2, 1))
    admin.createTopics(topics).all().get()
    admin.close()
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)

    def send(topic: str, key: str, row: dict[str, Any]) -> None:
        record = jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, key, json.dumps(row))
        producer.send(record)

    number = 0
    with (folder / "sent.jsonl").open("w") as sent:
        while not (folder / "enough").exists():
            orders: list[dict[str, Any]] = [
                {
                    "order_id": number + each,
                    "customer": f"c{rng.randrange(CUSTOMERS)}",
                    "amount": rng.randrange(100, 900),
                    "ts": (START + dt.timedelta(seconds=number + each)).isoformat(),
                }
                for each in range(AT_ONCE)
            ]
            number += AT_ONCE
            paid = [order for order in orders if rng.random() < 0.8]
            for order in orders:
                send("orders", order["customer"], order)
            for order in paid:
                at = dt.datetime.fromisoformat(order["ts"]) + dt.timedelta(minutes=1)
                payment = {"order_id": order["order_id"], "paid": order["amount"], "ts": at.isoformat()}
                send("payments", str(order["order_id"]), payment)
            producer.flush()
            sent.writelines(json.dumps(order) + "\n" for order in paid)
            sent.flush()
            time.sleep(_PAUSE_S)  # it goes on beside the job, and is no load
    producer.close()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
