"""The ranking of a game, tried without Spark, against one that keeps every score."""

from __future__ import annotations

import random

from leaderboard import LEADERS, PLACES, SCORES, Leaders

from holdfast.testing import Harness


def test_three_entries_are_as_good_as_all_scores() -> None:
    draw = random.Random(7)
    game = Harness(Leaders(), by="game", events=SCORES, output=LEADERS)
    every: dict[str, int] = {}
    for _ in range(40):
        scores = [(f"p{draw.randrange(9)}", draw.randrange(100)) for _ in range(5)]
        for player, score in scores:
            every[player] = max(score, every.get(player, 0))
        events = [{"game": "chess", "player": player, "score": score} for player, score in scores]
        found = [(row["player"], row["score"]) for row in game.send(*events)]
        best = sorted(every.items(), key=lambda entry: (-entry[1], entry[0]))
        assert [score for _, score in found] == [score for _, score in best[:PLACES]]
        assert len(game.state("chess")["best"]) <= PLACES
