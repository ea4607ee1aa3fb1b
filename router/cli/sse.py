"""Reads server-sent events from the lines of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct


class ServerEvent(Struct, frozen=True):
    """One event. `comment` is the text of a comment line, and then there is no data."""

    data: str = ""
    name: str = ""
    id: str = ""
    comment: str = ""

    def json(self) -> dict[str, Any]:
        """The data as a JSON object; anything else is wrapped as `{"data": …}`."""
        try:
            value = json.loads(self.data)
        except ValueError:
            return {"data": self.data}
        return value if isinstance(value, dict) else {"data": value}


def server_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events in order, comments as events of their own. An event that is not ended by a blank line is dropped."""
    data: list[str] = []
    name = id = ""
    for line in lines:
        if not line:
            if data:
                yield ServerEvent("\n".join(data), name, id)
            data, name, id = [], "", ""
        elif line.startswith(":"):
            yield ServerEvent(comment=line[1:].strip())
        else:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id":
                id = value
