"""Medians, ratios and the table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tests.bench.goals import Case, Goal


@dataclass(frozen=True)
class Line:
    """One figure of one case: the values of each round for both gateways, and whether the goal was met."""

    case: str
    goal: Goal
    ours: list[float]
    theirs: list[float]

    def as_json(self) -> dict[str, object]:
        ours = statistics.median(self.ours)
        theirs = statistics.median(self.theirs) if self.theirs else None
        return {
            "case": self.case,
            "figure": self.goal.figure,
            "ours": round(ours, 2),
            "theirs": None if theirs is None else round(theirs, 2),
            "ratio": None if theirs is None else round(ours / theirs, 4),
            "bound": self.goal.bound,
            "better": "higher" if self.goal.at_least else "lower",
            "met": self.goal.met(ours, theirs) if theirs is not None or self.goal.absolute else None,
            "rounds": {"ours": [round(v, 2) for v in self.ours], "theirs": [round(v, 2) for v in self.theirs]},
        }


def lines(case: Case, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> list[Line]:
    return [
        Line(case.name, goal, [r[goal.figure] for r in ours], [r[goal.figure] for r in theirs]) for goal in case.goals
    ]


def table(rows: Iterable[Line]) -> str:
    out = ["| case | figure | llamaherd | llama-server | ratio | goal | met |", "|---|---|---|---|---|---|---|"]
    for row in map(Line.as_json, rows):
        sign = "≥" if row["better"] == "higher" else "≤"
        met = {True: "yes", False: "NO", None: "–"}[row["met"]]  # type: ignore[index]
        theirs, ratio = row["theirs"] or "–", row["ratio"] or "–"
        cells = (row["case"], row["figure"], row["ours"], theirs, ratio, f"{sign} {row['bound']}", met)
        out.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(out)
