"""The shape of one option, and of a value given to it."""

from __future__ import annotations

import enum
from collections.abc import Callable

from msgspec import Struct


class Target(enum.Enum):
    """What an option's value becomes a part of."""

    SERVER = "server"
    """`Settings`: the gateway as a whole. Not allowed in a preset."""
    LOAD = "load"
    """`LoadParameters`, hence the load key."""
    DRAFT = "draft"
    """`DraftSpec` within the load parameters."""
    WORKER = "worker"
    """`WorkerSettings`."""
    SAMPLING = "sampling"
    """`SamplingParameters` that a request starts from."""
    REQUEST = "request"
    """`RequestDefaults` beside sampling."""
    MODEL = "model"
    """How the gateway treats the model: `Traits`."""
    SOURCE = "source"
    """Which file a model is, and its names. On the command line it makes a model of its own and overrides nothing."""
    IGNORED = "ignored"
    """A flag of llama-server that changes nothing here: accepted, and named in one warning."""
    REFUSED = "refused"
    """A flag of llama-server that changes memory, placement or output in a way not offered here: an error."""


class Option(Struct, frozen=True):
    """One option in all its spellings.

    `flags` are those of the command line, the last one gives the option its name; `off` are negated ones, which make
    it a switch. `parse` turns text into the value and raises `BadValue`. `metavar` is empty for switches. `reason`
    says why an option is ignored or refused.
    """

    flags: tuple[str, ...]
    target: Target
    field: str
    parse: Callable[[str], object]
    metavar: str = ""
    env: str = ""
    help: str = ""
    off: tuple[str, ...] = ()
    many: bool = False
    """Repetitions add up instead of replacing one another."""
    words: int = 1
    """How many words of a command line are its value; `parse` gets them with a space between them."""
    preset_only: bool = False
    secret: bool = False
    reason: str = ""

    @property
    def name(self) -> str:
        return self.flags[-1].lstrip("-")

    @property
    def is_switch(self) -> bool:
        return not self.metavar

    @property
    def own_env(self) -> str:
        """The name under which the environment may set this option, llama-server's name apart."""
        return "LLAMAHERD_" + self.name.upper().replace("-", "_")

    @property
    def in_preset(self) -> bool:
        return self.target is not Target.SERVER and not self.secret


class Assignment(Struct, frozen=True):
    """A value given to an option, and where it came from ("--ctx-size", "LLAMA_ARG_CTX_SIZE", "[*] line 3")."""

    option: Option
    texts: tuple[str, ...]
    origin: str

    @property
    def value(self) -> object:
        """The parsed value: of the last text, or of all of them in a tuple where they add up. Raises `BadValue`."""
        if not self.option.many:
            return self.option.parse(self.texts[-1])
        values: list[object] = []
        for text in self.texts:
            parsed = self.option.parse(text)
            values.extend(parsed if isinstance(parsed, tuple) else (parsed,))
        return tuple(values)

    @property
    def text(self) -> str:
        """For display; secrets are masked."""
        return "***" if self.option.secret else ",".join(self.texts)
