"""One model that clients may name, with everything that was configured for it."""

from __future__ import annotations

from msgspec import Struct

from protocol.load import LoadParameters, WorkerSettings
from router.config.effective import Overridden
from router.config.facts import ModelFacts
from router.config.option import Assignment
from router.config.predict import Prediction
from router.config.traits import RequestDefaults, Traits


class Model(Struct, frozen=True):
    """A name and what stands behind it.

    `error` says why it cannot be loaded; then `key` is "" and `parameters` None. `missing` is a hub reference whose
    files are not there yet: the model can be loaded once it has been downloaded. `facts` is None for a file whose
    header has not been read.
    """

    id: str
    source: str
    """`preset`, `models_dir`, `cache`, or `command_line`."""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    key: str = ""
    parameters: LoadParameters | None = None
    worker: WorkerSettings = WorkerSettings()
    request: RequestDefaults = RequestDefaults()
    traits: Traits = Traits()
    environment: tuple[tuple[str, str], ...] = ()
    facts: ModelFacts | None = None
    projector: ModelFacts | None = None
    predictions: tuple[Prediction, ...] = ()
    on_gpu: bool = False
    reserved_threads: int = 0
    """Cores that are this model's alone while it computes; 0 = a fair share."""
    listed: bool = True
    error: str = ""
    missing: str = ""
    assignments: tuple[Assignment, ...] = ()
    """Every value that counts, with its origin."""
    overridden: tuple[Overridden, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, *self.aliases)

    @property
    def path(self) -> str:
        return self.parameters.model_path if self.parameters is not None else ""

    @property
    def can_remove(self) -> bool:
        return self.source == "cache"

    @property
    def input_modalities(self) -> tuple[str, ...]:
        """What the model takes, by its projector's header."""
        sees = self.projector is not None and self.projector.sees
        hears = self.projector is not None and self.projector.hears
        return ("text", *(("image",) if sees else ()), *(("audio",) if hears else ()))

    def arguments(self) -> list[str]:
        """The effective configuration as a command line, as llama-server shows it for each model."""
        words: list[str] = ["llamaherd"]
        for item in self.assignments:
            flag = item.option.flags[-1]
            if item.option.is_switch:
                off = item.texts[-1] in ("off", "false", "0", "disabled", "no")
                words.append(item.option.off[-1] if off and item.option.off else flag)
                if off and not item.option.off:
                    words.pop()
            else:
                words.extend((flag, item.text))
        return words

    def preset_text(self) -> str:
        """The effective configuration as a section of a preset file."""
        lines = [f"[{self.id}]"]
        lines.extend(f"{item.option.name} = {item.text}" for item in self.assignments)
        lines.extend(f"env.{name} = {value}" for name, value in self.environment)
        return "\n".join(lines) + "\n"
