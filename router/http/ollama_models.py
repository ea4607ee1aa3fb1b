"""Ollama's API for models: what there is, what runs, what it is, and its copies by another name."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from protocol.load import ModelInfo
from router.config.model import Model
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import Dialect, invalid, model_not_found
from router.http.ollama_request import context_of
from router.http.replies import Reply, json_reply
from router.http.routing import Route
from router.http.services import Services
from router.http.version import VERSION

FOREVER = "9999-12-31T23:59:59Z"
"""When a model expires that has no timer."""


class NameRequest(Struct, kw_only=True):
    """`name` is what older clients call `model`."""

    model: str | None = None
    name: str | None = None

    @property
    def wanted(self) -> str:
        wanted = self.model or self.name
        if not wanted:
            raise invalid("'model' is required", "model")
        return wanted


class CopyRequest(Struct, kw_only=True):
    source: str | None = None
    destination: str | None = None


_name: msgspec.json.Decoder[NameRequest] = msgspec.json.Decoder(NameRequest)
_copy: msgspec.json.Decoder[CopyRequest] = msgspec.json.Decoder(CopyRequest)


class OllamaModels:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/api/tags", self.tags, Dialect.OLLAMA),
            Route("GET", "/api/ps", self.running, Dialect.OLLAMA),
            Route("GET", "/api/version", self.version, Dialect.OLLAMA),
            Route("POST", "/api/show", self.show, Dialect.OLLAMA),
            Route("POST", "/api/copy", self.copy, Dialect.OLLAMA),
        ]

    async def version(self, call: Call) -> Response:
        return json_reply({"version": VERSION})

    async def tags(self, call: Call) -> Response:
        listed = [(model.id, model) for model in self._services.catalogue.listed() if call.may_use(*model.names)]
        for name, id in self._services.copies.items():
            model = self._services.lookup(id)
            if model is not None and call.may_use(name, *model.names):
                listed.append((name, model))
        return json_reply({"models": [self._entry(name, model) for name, model in listed]})

    async def running(self, call: Call) -> Response:
        entries: list[dict[str, Any]] = []
        for model in self._services.catalogue.models.values():
            view = self._services.owner.view(model.key) if model.key else None
            if view is None or view.status not in ("loaded", "sleeping") or not call.may_use(*model.names):
                continue
            info = self._services.owner.info(model.key)
            entry = self._entry(model.id, model)
            report = self._services.owner.status(model.key)
            devices = report.memory.devices if report is not None else ()
            entry["size_vram"] = sum(
                device.weights + device.context + device.compute for device in devices if device.device != "host"
            )
            entry["expires_at"] = FOREVER
            entry["context_length"] = context_of(model, info)
            entries.append(entry)
        return json_reply({"models": entries})

    def _entry(self, name: str, model: Model) -> dict[str, Any]:
        return {
            "name": tagged(name),
            "model": tagged(name),
            "modified_at": modified_at(model),
            "size": size(model),
            "digest": digest(model),
            "details": details(model, self._services.owner.info(model.key) if model.key else None),
        }

    async def show(self, call: Call) -> Response:
        wanted = decode(_name, await call.body()).wanted
        model = self._services.visible(call, wanted)
        if model is None:
            raise model_not_found(wanted)
        info = self._services.owner.info(model.key) if model.key else None
        facts = model.facts
        return json_reply(
            {
                "modelfile": f"FROM {model.path}\n",
                "parameters": "\n".join(f"{item.option.name} {item.text}" for item in model.assignments),
                "template": template(model, info),
                "details": details(model, info),
                "model_info": {
                    "general.architecture": facts.architecture if facts else "",
                    "general.parameter_count": facts.n_params if facts else 0,
                    "general.file_type": facts.file_type if facts else "",
                    f"{facts.architecture if facts else 'unknown'}.context_length": facts.n_ctx_train if facts else 0,
                    f"{facts.architecture if facts else 'unknown'}.embedding_length": facts.n_embd if facts else 0,
                    f"{facts.architecture if facts else 'unknown'}.block_count": facts.n_layer if facts else 0,
                },
                "capabilities": capabilities(model, info),
                "modified_at": modified_at(model),
            }
        )

    async def copy(self, call: Call) -> Response:
        """Let a model answer to one more name, until that is deleted."""
        request = decode(_copy, await call.body())
        if not request.source or not request.destination:
            raise invalid("'source' and 'destination' are required", "source" if not request.source else "destination")
        model = self._services.visible(call, request.source)
        if model is None:
            raise model_not_found(request.source)
        if self._services.lookup(request.destination) is not None:
            raise invalid(f"there is a model named '{request.destination}' already", "destination")
        self._services.copies.add(request.destination, model.id)
        return Reply(b"", media_type=b"text/plain")


def tagged(name: str) -> str:
    """Ollama shows every name with a tag."""
    return name if ":" in name else f"{name}:latest"


def size(model: Model) -> int:
    """Bytes of the model's files."""
    return sum(identity.size for _, identity, _ in model.facts.files) if model.facts is not None else 0


def modified_at(model: Model) -> str:
    files = model.facts.files if model.facts is not None else ()
    newest = max((identity.mtime for _, identity, _ in files), default=0)
    return datetime.fromtimestamp(newest / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest(model: Model) -> str:
    """A name for exactly these files and settings; hashing gigabytes for a list would be out of proportion."""
    return hashlib.sha256((model.key or model.id).encode()).hexdigest()


def details(model: Model, info: ModelInfo | None) -> dict[str, Any]:
    facts = model.facts
    architecture = facts.architecture if facts is not None else (info.architecture if info is not None else "")
    return {
        "parent_model": "",
        "format": "gguf",
        "family": architecture,
        "families": [architecture],
        "parameter_size": parameter_size(facts.n_params if facts is not None else 0),
        "quantization_level": facts.file_type if facts is not None else (info.ftype if info is not None else ""),
    }


def parameter_size(count: int) -> str:
    """A number of parameters in three digits or so: 134.5M, 8.0B."""
    if count >= 10**9:
        return f"{count / 1e9:.1f}B"
    return f"{count / 1e6:.2f}M" if count else ""


def template(model: Model, info: ModelInfo | None) -> str:
    if info is not None and info.chat_template:
        return info.chat_template
    return model.facts.chat_template if model.facts is not None else ""


def capabilities(model: Model, info: ModelInfo | None) -> list[str]:
    """What clients ask before they offer a feature."""
    text = template(model, info)
    pooled = model.facts is not None and model.facts.pooling not in ("", "none")
    found = ["embedding"] if pooled else ["completion"]
    if "tools" in text:
        found.append("tools")
    if "enable_thinking" in text or "<think>" in text:
        found.append("thinking")
    if info is not None and info.has_fim:
        found.append("insert")
    if "image" in model.input_modalities:
        found.append("vision")
    if "audio" in model.input_modalities:
        found.append("audio")
    return found
