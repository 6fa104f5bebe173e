"""The committed files of tables that Spark has written in a bucket and on HDFS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from command import answer_of
from s3_gateway import CLOUD_JARS, S3A_JARS

import holdfast as hf
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from hdfs_cluster import Cluster
    from s3_gateway import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.services]

SCRIPT = Path(__file__).parent / "jobs" / "table_elsewhere.py"
PATIENCE_S = 300


def check(table: str, spark_table: str, conf: dict[str, str], home: Path, folder: Path) -> None:
    """Write two batches there, add a file of a failed batch, and read what the log lists."""
    given = {"table": spark_table, "checkpoint": f"{spark_table}-checkpoint", "conf": conf}
    answer_of(SCRIPT, {**given, "folder": str(folder / "in")}, home, PATIENCE_S)
    storage = open_storage(table)
    (name, *_) = storage.list("day=a b").names
    storage.write("day=a b/failed.parquet", storage.read(f"day=a b/{name}"))

    def numbers(address: str) -> list[int]:
        assert address.startswith(f"{table}/day=a b/"), address
        copy = folder / "copy.parquet"
        copy.write_bytes(storage.read(address.removeprefix(f"{table}/")))
        return [row["number"] for row in pq.read_table(copy, partitioning=None).to_pylist()]

    files = hf.committed_files(table)
    assert [number for file in files for number in numbers(str(file))] == [1, 2, 3]


def test_in_a_bucket(s3_gateway: Gateway, home: Path, tmp_path: Path) -> None:
    bucket = s3_gateway.bucket()
    conf = s3_gateway.spark_conf(S3A_JARS, CLOUD_JARS)
    check(f"{bucket}/tables/t", f"{bucket.replace('s3:', 's3a:')}/tables/t", conf, home, tmp_path)


def test_on_hdfs(hdfs_cluster: Cluster, home: Path, tmp_path: Path) -> None:
    table = f"{hdfs_cluster.root()}/tables/t"
    check(table, hdfs_cluster.native(table), {}, home, tmp_path)
