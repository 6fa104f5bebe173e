"""A session of a user by applyInPandasWithState, without a timeout."""
from pyspark.sql.streaming.state import GroupStateTimeout


def sessions(key, frames, state):
    count = state.getOption or (0,)
    for pdf in frames:
        count = (count[0] + len(pdf),)
    state.update(count)
    yield from ()


users = spark.readStream.table("clicks").groupBy("user").applyInPandasWithState(
    sessions, "user string", "n long", "append", GroupStateTimeout.NoTimeout
)
users.writeStream.option("checkpointLocation", "/chk/users").toTable("users")
