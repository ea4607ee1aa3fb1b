"""Keys are read again with the configuration; what is wrong with a file changes nothing."""

from __future__ import annotations

from pathlib import Path

import httpx

from router.config.errors import ConfigError
from router.security.keyfile import read_key_file
from router.security.keys import KeyRing, KeySpec
from tests.router.http.gateway import Running, gateway


def one_key(secret: str) -> list[KeySpec]:
    return [KeySpec(secret, "all")]


async def statuses(running: Running, *keys: str) -> list[int]:
    """What each key gets from a route that needs one."""
    async with running.client() as http:
        return [(await http.get("/models", headers={"Authorization": f"Bearer {key}"})).status_code for key in keys]


async def reload(running: Running, key: str) -> httpx.Response:
    async with running.client() as http:
        return await http.post("/models/reload", headers={"Authorization": f"Bearer {key}"})


async def test_new_keys_open_and_old_ones_do_not() -> None:
    async with gateway(listen=False) as running:
        running.services.policy.use(KeyRing(one_key("old")))
        assert await statuses(running, "old", "new") == [200, 401]
        running.services.read_keys = lambda: KeyRing(one_key("new"))
        assert (await reload(running, "old")).status_code == 200
        assert await statuses(running, "old", "new") == [401, 200]


async def test_a_bad_file_keeps_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    async with gateway(listen=False) as running:
        running.services.policy.use(KeyRing(one_key("old")))
        running.services.read_keys = lambda: KeyRing(read_key_file(path))
        for content in ("", "new scopes=everything\n", None):
            if content is None:
                path.unlink()
            else:
                path.write_text(content)
            refused = await reload(running, "old")
            assert refused.status_code == 400
            assert "stays as it was" in refused.json()["error"]["message"]
            assert await statuses(running, "old", "new") == [200, 401]


async def test_models_that_are_wrong_keep_the_keys_too() -> None:
    async with gateway(listen=False) as running:
        running.services.policy.use(KeyRing(one_key("old")))
        running.services.read_keys = lambda: KeyRing(one_key("new"))

        def broken() -> None:
            raise ConfigError("no such folder")

        running.services.configuration.reload = broken  # type: ignore[method-assign,assignment]
        assert (await reload(running, "old")).status_code == 400
        assert await statuses(running, "old", "new") == [200, 401]


async def test_host_names_are_checked_as_long_as_there_are_no_keys() -> None:
    async with gateway(listen=False) as running, running.client() as http:

        async def from_elsewhere() -> int:
            return (await http.get("/health", headers={"Host": "evil.example"})).status_code

        assert await from_elsewhere() == 403
        running.services.policy.use(KeyRing(one_key("new")))
        assert await from_elsewhere() == 200
        running.services.policy.use(KeyRing([]))
        assert await from_elsewhere() == 403
