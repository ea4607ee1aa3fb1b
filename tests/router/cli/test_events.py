from __future__ import annotations

import json

import pytest

from router.cli.events import show, summary
from router.cli.sse import ServerEvent, server_events


def test_events_come_with_their_ids_and_comments() -> None:
    lines = ["id: 4", "event: x", "data: {", "data: }", "", ": still here", "data:no space", "", "data: never ended"]
    assert list(server_events(lines)) == [
        ServerEvent("{\n}", "x", "4"),
        ServerEvent(comment="still here"),
        ServerEvent("no space"),
    ]


def test_data_that_is_no_object_is_wrapped() -> None:
    assert ServerEvent("[1]").json() == {"data": [1]}
    assert ServerEvent("plain").json() == {"data": "plain"}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"status": "unloaded", "exit_code": 1, "reason": "crashed"}, "unloaded reason=crashed exit_code=1"),
        (
            {"status": "loading", "progress": {"stages": [], "current": "text_model", "value": 0.5}},
            "loading text_model 50%",
        ),
        ({"progress": {"a": {"done": 1, "total": 4}, "b": {"done": 1, "total": 4}}}, "25%"),
        (None, ""),
        ("text", "text"),
    ],
)
def test_the_telling_parts(data: object, text: str) -> None:
    assert summary(data) == text


def event(**value: object) -> ServerEvent:
    return ServerEvent(json.dumps(value), "", "9")


def test_only_the_model_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b", "*"):
        show(event(model=name, event="status_change", data={"status": "loaded"}), "a", snapshot=False, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["a: status_change loaded", "*: status_change loaded"]


def test_json_lines_carry_the_id(capsys: pytest.CaptureFixture[str]) -> None:
    show(event(model="a", event="x"), None, snapshot=False, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"id": "9", "model": "a", "event": "x"}


def test_the_snapshot_is_shown_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    models = [{"id": "a", "status": {"value": "loaded"}}]
    show(event(event="snapshot", data={"models": models}), None, snapshot=False, as_json=False)
    assert capsys.readouterr().out == ""
    show(event(event="snapshot", data={"models": models}), None, snapshot=True, as_json=False)
    assert "a: loaded" in capsys.readouterr().out
