from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from router.security.keyfile import GENERATED_NAME, generated_key, keys_from_options, parse_key_lines, read_key_file
from router.security.keys import MAX_KEY_LENGTH, InvalidKey, KeyRing, KeySpec
from router.security.scopes import ALL_SCOPES, OPENED_BY, Access, Scope


def only(*scopes: Scope) -> KeyRing:
    return KeyRing([KeySpec("secret", "it", frozenset(scopes))])


def test_a_presented_key_is_found_among_several() -> None:
    ring = KeyRing([KeySpec("alpha", "a"), KeySpec("beta", "b"), KeySpec("gamma", "c")])
    assert [ring.find(secret).name for secret in ("alpha", "beta", "gamma")] == ["a", "b", "c"]  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", ["", "alph", "alphaa", "ALPHA", " alpha", "α", "\udcff", "a" * (MAX_KEY_LENGTH + 1)])
def test_a_wrong_key_is_not_found(wrong: str) -> None:
    assert KeyRing([KeySpec("alpha", "a")]).find(wrong) is None


def test_the_ring_does_not_hold_the_secret() -> None:
    spec = KeySpec("very-secret-value", "a")
    ring = KeyRing([spec])
    assert "very-secret-value" not in repr(ring.find("very-secret-value")) + repr(vars(ring)) + repr(spec)


def test_two_rings_hash_one_key_differently() -> None:
    first, second = (KeyRing([KeySpec("alpha", "a")]) for _ in range(2))
    assert vars(first)["_entries"][0][0] != vars(second)["_entries"][0][0]


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([KeySpec("x", "a"), KeySpec("y", "a")], "two keys are called 'a'"),
        ([KeySpec("xyz-123", "a"), KeySpec("xyz-123", "b")], "key 'b' is given twice"),
        ([KeySpec("", "a")], "1 to"),
    ],
)
def test_keys_that_contradict_each_other_are_refused_without_naming_them(specs: list[KeySpec], message: str) -> None:
    with pytest.raises(InvalidKey, match=message) as caught:
        KeyRing(specs)
    assert "xyz-123" not in str(caught.value)


@pytest.mark.parametrize("access", [access for access in Access if access is not Access.PUBLIC])
@pytest.mark.parametrize("scope", Scope)
def test_a_scope_opens_what_the_table_says(access: Access, scope: Scope) -> None:
    key = only(scope).find("secret")
    assert key is not None
    assert key.grants(access) == (scope in OPENED_BY[access])


def test_a_key_without_scopes_reaches_only_what_is_public() -> None:
    key = only().find("secret")
    assert key is not None
    assert [access for access in Access if key.grants(access)] == [Access.PUBLIC]


def test_infer_neither_observes_nor_manages_and_observe_does_not_infer() -> None:
    assert Scope.INFER not in OPENED_BY[Access.OBSERVE] | OPENED_BY[Access.MANAGE]
    assert OPENED_BY[Access.INFER] == {Scope.INFER}
    assert OPENED_BY[Access.MANAGE] == {Scope.MANAGE}


def test_models_are_shell_patterns_over_the_name_sent_and_the_name_it_stands_for() -> None:
    ring = KeyRing([KeySpec("s", "n", models=("qwen*", "fast"))])
    key = ring.find("s")
    assert key is not None
    assert key.may_use("qwen3-4b")
    assert key.may_use("fast", "gemma")
    assert not key.may_use("gemma")
    assert not key.may_use("QWEN3")


def test_key_files_hold_bare_keys_comments_and_attributes() -> None:
    specs = parse_key_lines(
        ["# team", "", "sk-one", "  sk-two name=ci scopes=infer,observe models=a*,b concurrency=3  "], "/etc/keys"
    )
    assert specs == [
        KeySpec("sk-one", "keys:3", ALL_SCOPES),
        KeySpec("sk-two", "ci", frozenset({Scope.INFER, Scope.OBSERVE}), ("a*", "b"), 3),
    ]


@pytest.mark.parametrize(
    "line",
    ["k3y scopes=admin", "k3y scopes=", "k3y colour=red", "k3y concurrency=-1", "k3y concurrency=x", "k3y another-k3y"],
)
def test_a_bad_line_is_named_by_its_number_and_without_its_key(line: str) -> None:
    with pytest.raises(InvalidKey, match=r"keys:2: ") as caught:
        parse_key_lines(["good", line], "keys")
    assert "k3y" not in str(caught.value)


def test_a_key_file_that_all_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-one\n")
    path.chmod(0o666)
    with pytest.raises(InvalidKey, match="chmod 600"):
        read_key_file(path)


def test_a_key_file_that_all_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-one\n")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert len(read_key_file(path)) == 1
    assert "everybody may read" in caplog.text
    assert "sk-one" not in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"\xff\xfe\xff"])
def test_a_key_file_without_keys_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(InvalidKey, match=str(path)):
        read_key_file(path)


def test_options_take_comma_lists_and_files(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("sk-three name=third\n")
    path.chmod(0o600)
    specs = keys_from_options(["sk-one, sk-two", ""], [path])
    assert [(spec.secret, spec.name) for spec in specs] == [
        ("sk-one", "option-1"),
        ("sk-two", "option-2"),
        ("sk-three", "third"),
    ]


def test_a_generated_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first, second = generated_key(state), generated_key(state)
    assert (first.created, second.created) == (True, False)
    assert first.spec.secret == second.spec.secret
    assert len(first.spec.secret) > 40
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700


def test_a_generated_key_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / GENERATED_NAME).symlink_to(target)
    with pytest.raises(InvalidKey):
        generated_key(tmp_path)
    assert not target.exists()
