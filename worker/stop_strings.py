"""Stop strings: found across token borders, in one pass whatever their number."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

MAX_CHARACTERS = 1 << 20
"""Of all stop strings of one request together."""


class StopAutomaton:
    """The stop strings of one request as an Aho–Corasick automaton. Immutable, shared by all choices.

    Raises `ValueError` for more than `MAX_CHARACTERS`.
    """

    def __init__(self, strings: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback: list[int] = [0]
        self._match: list[str] = [""]
        self.depth: list[int] = [0]
        distinct = [string for string in dict.fromkeys(strings) if string]
        if sum(map(len, distinct)) > MAX_CHARACTERS:
            raise ValueError(f"the stop strings have more than {MAX_CHARACTERS} characters")
        for string in distinct:
            self._add(string)
        self._link()

    def __bool__(self) -> bool:
        return len(self._next) > 1

    def match(self, state: int) -> str:
        """The longest stop string that ends in this state, empty for none."""
        return self._match[state]

    def step(self, state: int, character: str) -> int:
        while character not in self._next[state]:
            if state == 0:
                return 0
            state = self._fallback[state]
        return self._next[state][character]

    def _add(self, string: str) -> None:
        state = 0
        for character in string:
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._fallback.append(0)
                self._match.append("")
                self.depth.append(self.depth[state] + 1)
            state = following
        self._match[state] = string

    def _link(self) -> None:
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for character, following in self._next[state].items():
                waiting.append(following)
                self._fallback[following] = self.step(self._fallback[state], character)
                if not self._match[following]:
                    self._match[following] = self._match[self._fallback[following]]


class StopMatcher:
    """Follows the text of one choice, holding back what may turn out to be the beginning of a stop string."""

    def __init__(self, automaton: StopAutomaton) -> None:
        self._automaton = automaton
        self._state = 0
        self._held = ""

    def feed(self, text: str) -> tuple[str, str]:
        """The text that is certain now, and the stop string that was met, or an empty string.

        Text behind a stop string is dropped.
        """
        automaton = self._automaton
        if not automaton:
            return text, ""
        state = self._state
        for position, character in enumerate(text):
            state = automaton.step(state, character)
            word = automaton.match(state)
            if word:
                seen = self._held + text[: position + 1]
                self._held = ""
                return seen[: len(seen) - len(word)], word
        self._state = state
        seen = self._held + text
        certain = len(seen) - automaton.depth[state]
        self._held = seen[certain:]
        return seen[:certain], ""

    def finish(self) -> str:
        """What was held back: no stop string came of it."""
        held, self._held = self._held, ""
        return held
