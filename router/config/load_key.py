"""The load key: names whose models would be the same process share one."""

from __future__ import annotations

import hashlib

import msgspec

from protocol.load import LoadParameters, WorkerSettings
from router.config.facts import Identity

KEY_DIGITS = 32

_encoder = msgspec.json.Encoder(order="deterministic")


def load_key(
    parameters: LoadParameters,
    worker: WorkerSettings,
    environment: tuple[tuple[str, str], ...],
    files: tuple[tuple[str, Identity], ...],
) -> str:
    """A digest of everything that a worker is made from, as asked for, and of the files as they are now.

    What was left to be chosen (a context size of 0) stays so in the key, since the choice may depend on the machine;
    paths count by the file behind them. Settings that a worker reads only at its start count too.
    """
    by_path = dict(files)

    def file(path: str) -> str:
        identity = by_path.get(path)
        return _encoder.encode(identity).decode() if identity is not None else path

    named = msgspec.structs.replace(
        parameters,
        model_path=file(parameters.model_path),
        mmproj_path=file(parameters.mmproj_path),
        adapters=tuple(msgspec.structs.replace(item, path=file(item.path)) for item in parameters.adapters),
        control_vectors=tuple(
            msgspec.structs.replace(item, path=file(item.path)) for item in parameters.control_vectors
        ),
        draft=msgspec.structs.replace(parameters.draft, model_path=file(parameters.draft.model_path)),
    )
    matter = _encoder.encode((named, worker, environment, sorted(identity for _, identity in files)))
    return hashlib.sha256(matter).hexdigest()[:KEY_DIGITS]


def files_of(parameters: LoadParameters) -> tuple[str, ...]:
    """Paths of all files that a worker opens, the further shards of the model apart."""
    paths = (
        parameters.model_path,
        parameters.mmproj_path,
        *(item.path for item in parameters.adapters),
        *(item.path for item in parameters.control_vectors),
        parameters.draft.model_path,
    )
    return tuple(path for path in paths if path)
