"""Whether a process works, seen from outside: the sign of life of a load that reports nothing for a while."""

from __future__ import annotations

from pathlib import Path

CPU_TICKS_MOVED = 2
FAULTS_MOVED = 50


class ActivityMeter:
    """Compares a process with itself at the last look."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._last: dict[int, tuple[int, int, int]] = {}

    def has_worked(self, pid: int) -> bool:
        """Whether it has used CPU time, touched pages or read bytes since the last look; True at the first."""
        now = self._look(pid)
        if now is None:
            return False
        before = self._last.get(pid)
        if before is None:
            self._last[pid] = now
            return True
        ticks, faults, read = (new - old for new, old in zip(now, before, strict=True))
        if ticks < CPU_TICKS_MOVED and faults < FAULTS_MOVED and read <= 0:
            return False
        self._last[pid] = now
        return True

    def keep(self, pids: set[int]) -> None:
        """Forget all others."""
        self._last = {pid: last for pid, last in self._last.items() if pid in pids}

    def _look(self, pid: int) -> tuple[int, int, int] | None:
        """CPU ticks, page faults and bytes read so far."""
        try:
            stat = (self._proc / str(pid) / "stat").read_text()
        except OSError:
            return None
        fields = stat[stat.rindex(")") + 2 :].split()
        minor, major, user, system = (int(fields[index]) for index in (7, 9, 11, 12))
        return user + system, minor + major, self._bytes_read(pid)

    def _bytes_read(self, pid: int) -> int:
        try:
            text = (self._proc / str(pid) / "io").read_text()
        except OSError:  # not ours to see, or not compiled into the kernel
            return 0
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("read_bytes"))
