"""What each Spark release does otherwise than those before it, from Spark's migration guide and its issues.

What each of them pins is in `checkpoints.pinned_settings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.engine.versions import minor

# The releases whose checkpoints and behaviour are known, oldest first.
RELEASES: Final = ("3.4", "3.5", "4.0", "4.1", "4.2", "4.3")
_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that a release does otherwise than those before it.

    Attributes:
        since: The first release that does.
        text: What it does.
        hint: What to do about it; None where there is nothing to do.
        reference: Where that is from.
        state_formats: The formats of state files that it concerns; None stands for queries without state.
    """

    since: str
    text: str
    hint: str | None
    reference: str
    state_formats: tuple[int | None, ...] = (None, 1, 2)


BEHAVIOURS: Final = (
    Behaviour(
        "4.0",
        "a query with a source that cannot do Trigger.AvailableNow reads all that is there in a single batch",
        None,
        "SPARK-45178",
    ),
    Behaviour(
        "4.0",
        "maintenance deletes old state files in groups: up to 30 % of the state's files stay for longer",
        f"{_STREAMING}.ratioExtraSpaceAllowedInCheckpoint=0 deletes as before",
        "SPARK-48931",
        state_formats=(1, 2),
    ),
    Behaviour(
        "4.0",
        "a relative path of a file sink is resolved by the driver and no longer by the executors",
        "give the sink an absolute path",
        "SPARK-50854",
    ),
    Behaviour(
        "4.1",
        "adaptive execution plans the batches of queries without state, which may put rows into other files",
        "spark.sql.adaptive.streaming.stateless.enabled=false plans as before",
        "Spark's migration guide, 4.0 to 4.1",
        state_formats=(None,),
    ),
    Behaviour(
        "4.1",
        "state files get checksum files beside them, and are checked by these when they are read",
        None,
        "SPARK-51972",
        state_formats=(2,),
    ),
    Behaviour(
        "4.2",
        "a checkpoint whose `metadata` is gone does not start; before, it started as another query",
        None,
        "SPARK-55058",
    ),
)


def behaviours_between(written: str, target: str, state_format: int | None) -> tuple[Behaviour, ...]:
    """What changes from one release to a later one.

    Args:
        written: The release that wrote the checkpoint.
        target: The one that is to go on.
        state_format: The format of the state files; None without state.
    """
    return tuple(
        behaviour
        for behaviour in BEHAVIOURS
        if minor(written) < minor(behaviour.since) <= minor(target)
        and state_format in behaviour.state_formats
    )
