"""Ends a text at the first line that is indented less than asked for, as fill-in clients want it."""

from __future__ import annotations


class IndentGuard:
    """Watches the lines behind the first. `least` is in characters, tabs and spaces alike; 0 watches nothing."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._held: str | None = None
        """A line break and the white space behind it, while nothing else has come."""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text that belongs to the output, and whether it has ended."""
        if self._least <= 0:
            return text, False
        out: list[str] = []
        for character in text:
            if self._held is None:
                if character == "\n":
                    self._held = character
                else:
                    out.append(character)
            elif character in " \t":
                self._held += character
            elif character == "\n":
                out.append(self._held)  # a blank line says nothing
                self._held = character
            elif len(self._held) - 1 < self._least:
                return "".join(out), True
            else:
                out += (self._held, character)
                self._held = None
        return "".join(out), False

    def finish(self) -> str:
        """White space that nothing has followed."""
        held, self._held = self._held or "", None
        return held
