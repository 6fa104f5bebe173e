#!/usr/bin/env bash
# entrypoint.sh: the command of the container, run by tini.
#
# Spark starts its own pods on Kubernetes with `driver …` and `executor`. Everything else is run as a command. Each
# replaces this script with exec, so that it receives signals.
set -euo pipefail

case ${1:-} in
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=${SPARK_DRIVER_BIND_ADDRESS:?}" \
    --deploy-mode client "$@"
  ;;
executor)
  # Spark passes the JVM options as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
  options=()
  for ((number = 0; ; number++)); do
    name=SPARK_JAVA_OPT_$number
    [ -n "${!name+there}" ] || break
    options+=("${!name}")
  done
  classes=${SPARK_CONF_DIR:-$SPARK_HOME/conf}:${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}$SPARK_HOME/jars/*
  classes+=${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}
  exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms${SPARK_EXECUTOR_MEMORY:?}" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$classes" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "${SPARK_DRIVER_URL:?}" --executor-id "${SPARK_EXECUTOR_ID:?}" \
    --cores "${SPARK_EXECUTOR_CORES:?}" --app-id "${SPARK_APPLICATION_ID:?}" \
    --hostname "${SPARK_EXECUTOR_POD_IP:?}" --resourceProfileId "${SPARK_RESOURCE_PROFILE_ID:?}" \
    --podName "${SPARK_EXECUTOR_POD_NAME:?}"
  ;;
*)
  exec "$@"
  ;;
esac
