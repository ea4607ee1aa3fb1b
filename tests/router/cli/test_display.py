from __future__ import annotations

import io

import pytest

from router.cli import display
from router.cli.load_test import percentiles


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1 kB"), (96_600_000, "96.6 MB"), (999_900, "1 MB"), (None, "-")],
)  # fmt: skip
def test_sizes(count: float | None, text: str) -> None:
    assert display.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12ms"), (4.21, "4.2s"), (200, "3m20s"), (7500, "2h05m"), (4 * 86400 + 3 * 3600, "4d03h"), (None, "-")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert display.duration(seconds) == text


def test_a_pipe_gets_whole_lines_without_colour() -> None:
    stream = io.StringIO()
    target = display.console(stream)
    target.print(display.table(("A", "B"), [(display.state("failed"), "x" * 100)]))
    assert "x" * 100 in stream.getvalue()
    assert "\033" not in stream.getvalue()


def test_names_in_brackets_are_no_markup() -> None:
    stream = io.StringIO()
    display.console(stream).print(display.table(("MODEL",), [("[red]model[/red]",)]))
    assert "[red]model[/red]" in stream.getvalue()


def test_percentiles_by_nearest_rank() -> None:
    found = percentiles([float(value) for value in range(1, 101)])
    assert (found.p50, found.p90, found.p99) == (51.0, 91.0, 100.0)
    assert percentiles([]).p50 == 0.0
