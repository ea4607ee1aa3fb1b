"""The stop ladder on real processes that obey less and less, and how their ends are told."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from protocol.codec import FromChild
from protocol.control import Shutdown
from protocol.errors import ExitCode
from protocol.load import Load, LoadParameters
from protocol.status import UpdateStatus, WorkerState
from router.scheduling.events import Child, ExitReason, ExitReport
from router.supervision.ladder import Rung
from router.supervision.nursery import Nursery
from router.supervision.process import Command
from router.supervision.runtime import RuntimeFolder, start_time
from tests.eventually import eventually_async
from tests.fakes.herd import fake_command

CHILD = Child("w1", 1)


class Audience:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.greeted: list[Child] = []
        self.messages: list[FromChild] = []
        self.reports: list[ExitReport] = []
        self.lost: list[Child] = []

    def connected(self, child: Child) -> None:
        self.greeted.append(child)

    def received(self, child: Child, message: FromChild) -> None:
        self.messages.append(message)

    def exited(self, child: Child, report: ExitReport) -> None:
        self.reports.append(report)

    def stuck(self, child: Child) -> None:
        self.lost.append(child)

    def says(self, state: WorkerState) -> bool:
        return any(isinstance(message, UpdateStatus) and message.state is state for message in self.messages)


@pytest.fixture
async def nursery(tmp_path: Path) -> AsyncIterator[Nursery]:
    runtime = RuntimeFolder(tmp_path / "run")
    nursery = Nursery(runtime)
    nursery.open()
    yield nursery
    await nursery.close(1.0)
    runtime.close()


@pytest.fixture
def audience() -> Audience:
    return Audience()


async def spawn(nursery: Nursery, audience: Audience, fault: str = "", child: Child = CHILD) -> int:
    pid = nursery.spawn(child, fake_command({}, fault), audience)
    await eventually_async(lambda: child in audience.greeted, 10, "it said hello")
    return pid


async def told(audience: Audience, seconds: float = 5.0) -> ExitReport:
    await eventually_async(lambda: bool(audience.reports), seconds, "the exit is told")
    return audience.reports[0]


@pytest.mark.parametrize(
    ("fault", "rung", "code"),
    [
        ("", Rung.MESSAGE, ExitCode.OK),
        ("ignore_shutdown", Rung.TERM, -signal.SIGTERM),
        ("ignore_sigterm", Rung.ABORT, -signal.SIGABRT),
        ("ignore_sigterm,ignore_sigabrt", Rung.KILL, -signal.SIGKILL),
    ],
)
async def test_each_rung(
    nursery: Nursery, audience: Audience, caplog: pytest.LogCaptureFixture, fault: str, rung: Rung, code: int
) -> None:
    caplog.set_level(logging.DEBUG, "llamaherd.supervision")
    pid = await spawn(nursery, audience, fault)
    nursery.stop(CHILD, ExitReason.IDLE, 0.3)
    report = await told(audience, 8)
    assert (report.reason, report.exit_code) == (ExitReason.IDLE, code)
    said = f"w1/1 ended at rung {rung.name.lower()}"
    await eventually_async(lambda: said in caplog.text, 1, said)
    assert not start_time(pid)
    assert nursery.children() == ()


async def test_a_child_that_has_not_connected_is_stopped_by_signal(nursery: Nursery, audience: Audience) -> None:
    nursery.spawn(CHILD, fake_command({}, "hang_at_start"), audience)
    nursery.stop(CHILD, ExitReason.ASKED, 5.0)
    report = await told(audience, 3)
    assert report.exit_code == -signal.SIGTERM
    assert audience.greeted == []


async def test_a_stopped_process_is_killed(nursery: Nursery, audience: Audience) -> None:
    pid = await spawn(nursery, audience)
    os.kill(pid, signal.SIGSTOP)
    nursery.kill(CHILD, ExitReason.WEDGED, dump=True)
    report = await told(audience)
    assert report.reason is ExitReason.WEDGED
    assert report.exit_code in (-signal.SIGABRT, -signal.SIGKILL)  # whichever the kernel sees first when it wakes


async def test_kill_overtakes_a_gentle_stop(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience, "ignore_shutdown")
    nursery.stop(CHILD, ExitReason.EVICTED, 60.0)
    nursery.stop(CHILD, ExitReason.IDLE, 60.0)
    nursery.kill(CHILD, ExitReason.WEDGED)
    report = await told(audience, 2)
    assert report.exit_code == -signal.SIGKILL
    assert report.reason is ExitReason.EVICTED


async def test_all_are_stopped_in_parallel(nursery: Nursery, audience: Audience) -> None:
    children = [Child(f"w{number}", 1) for number in range(4)]
    for child in children:
        await spawn(nursery, audience, "ignore_shutdown", child)
    start = asyncio.get_running_loop().time()
    await nursery.close(0.5)
    assert asyncio.get_running_loop().time() - start < 1.5
    assert [report.reason for report in audience.reports] == [ExitReason.ROUTER_STOPPING] * 4


async def test_descendants_go_with_their_child(nursery: Nursery, audience: Audience, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {note}; exit 3"
    nursery.spawn(CHILD, Command("worker", ("/bin/sh", "-c", script), (("PATH", os.environ["PATH"]),)), audience)
    report = await told(audience)
    assert (report.reason, report.exit_code) == (ExitReason.CRASHED, 3)
    pid = int(note.read_text())
    await eventually_async(lambda: not start_time(pid), 2, "the descendant is gone")


async def test_an_exit_is_told_within_a_second_and_after_all_its_frames(nursery: Nursery, audience: Audience) -> None:
    pid = await spawn(nursery, audience)
    os.kill(pid, signal.SIGSEGV)
    report = await told(audience, 1.0)
    assert (report.reason, report.exit_code) == (ExitReason.SIGNAL, -signal.SIGSEGV)
    assert "SIGSEGV" in report.message


async def test_last_words_come_before_the_exit(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience)
    nursery.send(CHILD, Load("m", LoadParameters("fake:load_error")))
    report = await told(audience)
    assert report.reason is ExitReason.LOAD_ERROR
    assert report.message == "fake: not a model"
    assert report.stderr == ("fake: loading m",)
    assert audience.says(WorkerState.LOADING)


async def test_lack_of_memory_is_told_apart(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience)
    nursery.send(CHILD, Load("m", LoadParameters("fake:load_out_of_memory")))
    assert (await told(audience)).reason is ExitReason.OUT_OF_MEMORY


async def test_a_shutdown_nobody_asked_for_is_a_crash(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience)
    nursery.send(CHILD, Shutdown())
    report = await told(audience)
    assert (report.reason, report.exit_code) == (ExitReason.CRASHED, 0)


async def test_a_wrong_version_is_refused_in_words(nursery: Nursery, audience: Audience) -> None:
    nursery.spawn(CHILD, fake_command({}, "wrong_protocol_version"), audience)
    report = await told(audience, 10)
    assert "protocol 99" in report.message
    assert audience.greeted == []


async def test_garbage_ends_the_child(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience, "garbage_frames")
    report = await told(audience)
    assert report.reason is ExitReason.CRASHED
    assert "protocol violation" in report.message


async def test_a_program_that_does_not_exist_is_an_error(nursery: Nursery, audience: Audience) -> None:
    with pytest.raises(FileNotFoundError):
        nursery.spawn(CHILD, Command("worker", ("/no/such/program",), ()), audience)
    assert nursery.children() == ()


async def test_a_child_of_another_role_is_not_accepted(nursery: Nursery, audience: Audience) -> None:
    command = msgspec.structs.replace(fake_command({}), role="downloader")
    nursery.spawn(CHILD, command, audience)
    report = await told(audience, 10)
    assert "it is a worker" in report.message
    assert audience.greeted == []


async def test_without_descriptors_nothing_is_started(
    nursery: Nursery, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(pid: int, flags: int = 0) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(OSError, match="too many"):
        nursery.spawn(CHILD, fake_command({}), audience)
    assert nursery.children() == ()


async def test_children_are_offered_to_the_kernel_first(nursery: Nursery, audience: Audience) -> None:
    pid = await spawn(nursery, audience)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == min(1000, own + 500)
    assert os.getpgid(pid) == pid
    # One session: the kernel weighs sessions against each other before the processes in them.
    assert os.getsid(pid) == os.getsid(0)


async def test_children_see_nothing_of_the_routers_secrets(
    nursery: Nursery, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAHERD_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    pid = await spawn(nursery, audience)
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"secret" not in environment
    assert b"GOMP_SPINCOUNT=20000" in environment


async def test_output_can_be_followed(nursery: Nursery, audience: Audience) -> None:
    await spawn(nursery, audience)
    output = nursery.log_of("w1")
    assert output is not None
    lines: list[str] = []
    unfollow = output.follow(lines.append)
    nursery.send(CHILD, Load("m", LoadParameters("fake:")))
    await eventually_async(lambda: lines == ["fake: loading m"], 5, "the line came")
    unfollow()
    nursery.send(CHILD, Load("m2", LoadParameters("fake:")))
    await eventually_async(lambda: "fake: loading m2" in output.lines, 5, "it was read")
    assert lines == ["fake: loading m"]
