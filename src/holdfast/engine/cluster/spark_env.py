"""What a driver's `SparkEnv` holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def of_spark_env(spark: SparkSession, name: str, kind: str) -> Any:
    """A part of the driver's `SparkEnv`.

    Py4J lists the methods of a class before it calls one. One of Spark 4.3's names a class that its jars
    lack, so nothing of `SparkEnv` can be called there; a handle asks for the one method.

    Args:
        spark: A session of this process.
        name: The method that gives it.
        kind: The full name of the class that this returns.
    """
    jvm: Any = spark._jvm
    of_name = jvm.java.lang.Class.forName
    signature = jvm.java.lang.invoke.MethodType.methodType(of_name(kind))
    lookup = jvm.java.lang.invoke.MethodHandles.publicLookup()
    handle = lookup.findVirtual(of_name("org.apache.spark.SparkEnv"), name, signature)
    arguments = jvm.java.util.ArrayList()
    arguments.add(spark._jsc.sc().env())
    return handle.invokeWithArguments(arguments)
