"""A server of Spark Connect with Holdfast's defaults; it ends with its input.

Arguments: the port, and a folder for what it keeps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast as hf


def main(port: str, folder: Path) -> None:
    spark = hf.session(
        "connect-server",
        master="local[2]",
        home=folder / "home",
        conf={
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": port,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
