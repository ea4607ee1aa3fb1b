"""Tables, progress bars and numbers for people. The only module that uses `rich`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import IO, Self

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

STATE_STYLES = {
    "loaded": "green",
    "loading": "yellow",
    "sleeping": "blue",
    "downloading": "cyan",
    "failed": "bold red",
    "unloaded": "dim",
}
MINIMUM_WIDTH = 60
PIPE_WIDTH = 4096


def console(stream: IO[str] | None = None) -> Console:
    """A console for a stream (standard output). Without a terminal its lines are not cut to a width.

    Names come from files and clients, so nothing in a text is markup.
    """
    target = stream if stream is not None else sys.stdout
    if target.isatty():
        made = Console(file=target, highlight=False, markup=False)
        if made.width < MINIMUM_WIDTH:
            made.width = MINIMUM_WIDTH
        return made
    return Console(file=target, highlight=False, markup=False, width=PIPE_WIDTH, no_color=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, right: Sequence[str] = ()) -> Table:
    """A table without lines. `right` are columns of numbers."""
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def panel_table(title: str, rows: Sequence[tuple[str, str | Text]]) -> Table:
    """Names and values under a title."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", show_header=False, pad_edge=False)
    for name, value in rows:
        made.add_row(Text(name, style="bold"), value)
    return made


def state(word: str) -> Text:
    return Text(word, style=STATE_STYLES.get(word, ""))


def size(count: float | None) -> str:
    """Bytes with three digits: `1.25 GB`. Units are powers of 1000, as disks and downloads have them."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.3g} {unit}"


def duration(seconds: float | None) -> str:
    """`850ms`, `4.2s`, `3m20s`, `2h05m`, `4d03h`."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"


def watch(render: Callable[[], RenderableType], wait: Callable[[], bool]) -> None:
    """Draw again and again on a terminal: `wait` returns whether to go on. Elsewhere draw once."""
    target = console()
    if not target.is_terminal:
        target.print(render())
        return
    with Live(render(), console=target, auto_refresh=False, transient=False) as live:
        while wait():
            live.update(render(), refresh=True)


@contextlib.contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """A sign of life on standard error until something happens; the function it yields changes the text."""
    target = console(sys.stderr)
    if not target.is_terminal:
        yield lambda text: None
        return
    with target.status(Text(text)) as status:
        yield lambda text: status.update(Text(text))


class _Amount(ProgressColumn):
    """`done / total` in bytes, or the percentage where no bytes are counted."""

    def render(self, task: Task) -> Text:
        if not task.fields.get("bytes"):
            return Text(f"{task.percentage:.0f}%" if task.total else "")
        return Text(f"{size(task.completed)} / {size(task.total)}")


class Bars:
    """Progress bars on standard error; plain lines at every tenth part where that is no terminal."""

    def __init__(self) -> None:
        self._console = console(sys.stderr)
        self._plain = not self._console.is_terminal
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Amount(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._told: dict[str, int] = {}

    def show(self, name: str, done: float, total: float, *, note: str = "", bytes: bool = False) -> None:
        """Set one bar; a total of 0 is not known yet."""
        if self._plain:
            self._tell(name, done, total, note)
            return
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total or None, note=note, bytes=bytes)
        self._progress.update(self._tasks[name], completed=done, total=total or None, note=note)

    def _tell(self, name: str, done: float, total: float, note: str) -> None:
        tenth = int(10 * done / total) if total else 0
        if self._told.get(name) != tenth:
            self._told[name] = tenth
            print(f"{name}: {10 * tenth}%" + (f" {note}" if note else ""), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if not self._plain:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._plain:
            self._progress.stop()
