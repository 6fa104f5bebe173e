"""The three best players of each game, served from the state of the running job.

    holdfast run leaderboard.py
    holdfast state get leaderboard chess

Only a player's best score counts. So a player who has dropped out of the best three can only come back with a
better score, and three entries per game are enough: the state does not grow with the players.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCORES = "game string, player string, score long"
LEADERS = "game string, rank int, player string, score long"
PLACES = 3


class Leaders(hf.Keyed):
    """Per game: the best score of each of its best players."""

    best: hf.State[hf.MapState[str, int]] = hf.map(str, int)

    def on_event(self, event: hf.Event, state: Leaders, ctx: hf.Context) -> None:
        """Enter a score, if it is among the best."""
        state.best[event.player] = max(event.score, state.best.get(event.player, event.score))
        if len(state.best) > PLACES:
            del state.best[ranking(dict(state.best))[-1][0]]

    def on_end(self, state: Leaders, ctx: hf.Context) -> Iterator[tuple[str, int, str, int]]:
        """Report the ranking of a game once a batch."""
        for rank, (player, score) in enumerate(ranking(dict(state.best)), 1):
            yield ctx.key.game, rank, player, score


def ranking(best: dict[str, int]) -> list[tuple[str, int]]:
    """Order players by score; equal scores by name."""
    return sorted(best.items(), key=lambda entry: (-entry[1], entry[0]))


@hf.job(name="leaderboard", checkpoint="checkpoint", trigger=hf.available_now())
def leaderboard(spark: SparkSession, data: str = "data") -> hf.Sink:
    """Read scores from a directory of JSON files."""
    scores = spark.readStream.schema(SCORES).json(f"{data}/scores")
    leaders = hf.keyed(scores, by="game").process(Leaders(), output=LEADERS, name="leaders")
    return hf.sink(leaders, name="leaders").upsert("leaders", keys=["game", "rank"], ledger="leaders.db")
