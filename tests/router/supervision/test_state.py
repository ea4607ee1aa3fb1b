from __future__ import annotations

from pathlib import Path

import pytest

from router.scheduling.model import Need
from router.supervision.state import MEASURED_KEPT, Residents, StateFolder

NEEDS = (Need("host", 5, (("8:1", 3),), measured=True),)


def test_an_unclean_end_is_restored_and_a_clean_one_is_not(tmp_path: Path) -> None:
    StateFolder(tmp_path / "state").save_residents(Residents(("a", "b"), clean=False))
    again = StateFolder(tmp_path / "state")
    assert again.residents_to_restore() == ("a", "b")
    again.save_residents(Residents(clean=True))
    assert StateFolder(tmp_path / "state").residents_to_restore() == ()


def test_measurements_survive(tmp_path: Path) -> None:
    StateFolder(tmp_path).save_measured("k", NEEDS)
    assert StateFolder(tmp_path).measured("k") == NEEDS
    assert StateFolder(tmp_path).measured("other") == ()


def test_old_measurements_make_room(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder._needs = {str(number): NEEDS for number in range(MEASURED_KEPT)}
    folder.save_measured("new", NEEDS)
    assert folder.measured("0") == ()
    assert folder.measured("1") == NEEDS
    assert folder.measured("new") == NEEDS


@pytest.mark.parametrize("content", [b"", b"{", b'{"keys": 5}', b"\xff"])
def test_a_broken_file_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "residents.json").write_bytes(content)
    (tmp_path / "measured.json").write_bytes(content)
    folder = StateFolder(tmp_path)
    assert folder.residents_to_restore() == ()
    assert folder.measured("k") == ()


def test_a_folder_that_cannot_be_written_costs_the_memory_only(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    (tmp_path / "measured.new").mkdir()
    folder.save_measured("k", NEEDS)
    assert folder.measured("k") == NEEDS
