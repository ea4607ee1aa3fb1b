from __future__ import annotations

from router.supervision.environment import SPIN_COUNT, downloader_environment, worker_environment

OWN = {
    "PATH": "/bin",
    "HOME": "/root",
    "CUDA_VISIBLE_DEVICES": "0",
    "HF_TOKEN": "secret",
    "HF_HOME": "/cache",
    "HF_ENDPOINT": "http://127.0.0.1:1",
    "https_proxy": "http://proxy",
    "LLAMAHERD_API_KEY": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "PYTHONPATH": "/evil",
    "LD_PRELOAD": "/evil.so",
}


def test_a_worker_gets_what_is_listed_and_a_bounded_spin() -> None:
    assert worker_environment(OWN) == {
        "PATH": "/bin",
        "HOME": "/root",
        "CUDA_VISIBLE_DEVICES": "0",
        "GOMP_SPINCOUNT": SPIN_COUNT,
    }


def test_a_preset_and_a_users_wait_policy_win() -> None:
    chosen = worker_environment(OWN | {"OMP_WAIT_POLICY": "PASSIVE"}, [("CUDA_VISIBLE_DEVICES", "1")])
    assert chosen["CUDA_VISIBLE_DEVICES"] == "1"
    assert chosen["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "GOMP_SPINCOUNT" not in chosen
    assert worker_environment({"GOMP_SPINCOUNT": "5"})["GOMP_SPINCOUNT"] == "5"


def test_the_downloader_gets_the_hubs_settings_but_no_token() -> None:
    assert downloader_environment(OWN) == {
        "PATH": "/bin",
        "HOME": "/root",
        "HF_HOME": "/cache",
        "HF_ENDPOINT": "http://127.0.0.1:1",
        "https_proxy": "http://proxy",
    }
