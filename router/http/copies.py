"""Further names of models, made by clients through Ollama's API; they outlive the gateway where `save` keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class Copies:
    """Names and the model ids that they stand for. `save` is given all of them after each change."""

    def __init__(
        self, known: Mapping[str, str] | None = None, save: Callable[[dict[str, str]], None] = lambda names: None
    ) -> None:
        self._names = dict(known or {})
        self._save = save

    def resolve(self, name: str) -> str:
        """The id behind a name; a name that is no copy stands for itself."""
        return self._names.get(name, name)

    def items(self) -> Iterable[tuple[str, str]]:
        return self._names.items()

    def add(self, name: str, id: str) -> None:
        self._names[name] = id
        self._save(dict(self._names))

    def drop(self, name: str) -> bool:
        """Forget a name; says whether there was one."""
        if name not in self._names:
            return False
        del self._names[name]
        self._save(dict(self._names))
        return True
