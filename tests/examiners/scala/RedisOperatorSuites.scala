package org.apache.spark.sql.execution.streaming.state
package examiners

import org.apache.spark.SparkConf
import org.apache.spark.sql.streaming._

/** Spark's own suites of stateful operators with their state in Redis. */
trait InRedis extends StreamTest {
  override protected def sparkConf: SparkConf =
    super.sparkConf.setAll(Redis.settings).set("spark.sql.streaming.join.stateFormatVersion", "2")
}

class RedisAggregationSuite extends StreamingAggregationSuite with InRedis
class RedisDeduplicationSuite extends StreamingDeduplicationSuite with InRedis
class RedisDeduplicationWithinWatermarkSuite extends StreamingDeduplicationWithinWatermarkSuite with InRedis
class RedisFlatMapGroupsWithStateSuite extends FlatMapGroupsWithStateSuite with InRedis

/** The suites of joins set a provider for each test; where they set the one of files, it is Redis here. */
trait JoinsInRedis extends InRedis {
  override protected def withSQLConf[T](pairs: (String, String)*)(body: => T): T = {
    val files = pairs.exists { case (_, value) => value.endsWith(".HDFSBackedStateStoreProvider") }
    super.withSQLConf(pairs ++ (if (files) Redis.settings else Nil): _*)(body)
  }
}

class RedisInnerJoinSuite extends StreamingInnerJoinWithoutVCFSuite with JoinsInRedis
class RedisOuterJoinSuite extends StreamingOuterJoinWithoutVCFSuite with JoinsInRedis
class RedisFullOuterJoinSuite extends StreamingFullOuterJoinWithoutVCFSuite with JoinsInRedis
class RedisLeftSemiJoinSuite extends StreamingLeftSemiJoinWithoutVCFSuite with JoinsInRedis
