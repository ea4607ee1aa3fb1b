from __future__ import annotations

import pytest

from router.security.keys import presented_key
from router.security.origins import LOCALHOST, allowed_origin, host_allowed


@pytest.mark.parametrize(
    ("authorization", "x_api_key", "expected"),
    [
        ("Bearer abc", None, "abc"),
        ("bearer  abc ", None, "abc"),
        ("abc", None, "abc"),
        (None, "xyz", "xyz"),
        ("", "xyz", "xyz"),
        ("Bearer wrong", "xyz", "wrong"),
        ("Basic abc", None, "Basic abc"),
        (None, None, ""),
    ],
)
def test_the_key_of_a_request(authorization: str | None, x_api_key: str | None, expected: str) -> None:
    assert presented_key(authorization, x_api_key) == expected


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:8080", "http://app.localhost", "tauri://localhost"],
)
def test_loopback_origins_may_call_by_default(origin: str) -> None:
    assert allowed_origin(origin, [LOCALHOST]) == origin


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://notlocalhost",
        "http://localhost.evil.com",
        "http://evil.com/localhost",
        "http://evil.com:80",
        "http://[bad",
        "http://127.0.0.1.evil.com",
        "file://",
    ],
)
def test_other_origins_may_not(origin: str) -> None:
    assert allowed_origin(origin, [LOCALHOST]) is None


def test_configured_origins_are_exact_and_a_star_is_for_all() -> None:
    assert allowed_origin("https://chat.example", ["https://chat.example"]) == "https://chat.example"
    assert allowed_origin("https://chat.example.org", ["https://chat.example"]) is None
    assert allowed_origin("https://anything.example", ["*"]) == "https://anything.example"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("[::1]:8080", True),
        ("gateway.local:8080", True),
        ("evil.com", False),
        ("127.0.0.1.evil.com", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_the_host_header_must_mean_this_machine(host: str, allowed: bool) -> None:
    assert host_allowed(host, ["gateway.local"]) is allowed
