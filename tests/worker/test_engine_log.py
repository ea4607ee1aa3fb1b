"""What the engine's lines say about memory."""

from __future__ import annotations

import threading

from protocol.status import DeviceMemory
from worker.llama_log import PROJECTOR, EngineLog

INFO, ERROR, CONTINUED = 2, 4, 5
MIB = 1 << 20


def say(log: EngineLog, line: str, source: int | None = None, level: int = INFO) -> None:
    log._take(level, line.encode() + b"\n", source)


def test_a_projector_adds_to_the_device_that_it_is_on() -> None:
    log = EngineLog()
    say(log, "load_tensors:        CPU_Mapped model buffer size =    20.00 MiB")
    say(log, "load_tensors:        CUDA0 model buffer size =   100.00 MiB")
    say(log, "sched_reserve:       CUDA0 compute buffer size =    30.00 MiB")
    say(log, "clip_ctx: CLIP using CUDA0 backend", PROJECTOR)
    say(log, "load_hparams: model size:         50.00 MiB", PROJECTOR)
    say(log, "load_hparams: model size:         5.00 MiB", PROJECTOR)
    for size in ("7.00", "8.00"):  # reserved anew: the last one counts
        say(log, f"reserve_compute_meta:      CUDA0 compute buffer size =     {size} MiB", PROJECTOR)
    assert log.buffers() == (
        DeviceMemory("host", 20 * MIB, 0, 0),
        DeviceMemory("CUDA0", 155 * MIB, 0, 38 * MIB),
    )


def test_a_projector_in_main_memory_and_a_new_load() -> None:
    log = EngineLog()
    say(log, "clip_ctx: CLIP using CPU backend", PROJECTOR)
    say(log, "load_hparams: model size:         2.50 MiB", PROJECTOR)
    assert log.buffers() == (DeviceMemory("host", 5 * MIB // 2, 0, 0),)
    log.forget_buffers()
    assert log.buffers() == ()


def test_lines_and_errors_of_threads_do_not_mix() -> None:
    log = EngineLog()
    log._take(ERROR, b"the weights: ", None)
    other = threading.Thread(target=say, args=(log, "the vocabulary is bad"), kwargs={"level": ERROR})
    other.start()
    other.join()
    log._take(CONTINUED, b"too large\n", None)
    assert log.errors() == ["the weights: too large"]
