"""llama-server's views into a running model: properties, slots, adapters, and a word to a running request."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from protocol.chat import MEDIA_MARKER, TextPrompt
from protocol.codec import Answer
from protocol.generate import Generate, LoraScale
from protocol.load import ModelInfo
from protocol.slots import Adapters, ListAdapters, SetAdapters, SlotAction, SlotActionDone
from protocol.status import SlotStatus
from router.config.model import Model
from router.http import sse
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import ApiError, invalid, not_supported
from router.http.fields import LoraField
from router.http.native_completion import generation_settings
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.services import Services, owner_of
from router.http.single import SingleBody
from router.http.version import FINGERPRINT

_EMPTY = TextPrompt("")


class SlotRequest(Struct):
    filename: str | None = None
    model: str | None = None


class ControlRequest(Struct):
    id: str | None = None
    action: str | None = None
    model: str | None = None


_slot: msgspec.json.Decoder[SlotRequest] = msgspec.json.Decoder(SlotRequest)
_adapters: msgspec.json.Decoder[list[LoraField]] = msgspec.json.Decoder(list[LoraField])
_control: msgspec.json.Decoder[ControlRequest] = msgspec.json.Decoder(ControlRequest)


class NativeServer:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/props", self.props),
            Route("POST", "/props", self.change_props),
            Route("GET", "/slots", self.slots),
            Route("POST", "/slots/{id}", self.act_on_slot),
            Route("GET", "/lora-adapters", self.adapters),
            Route("POST", "/lora-adapters", self.set_adapters),
            Route("POST", "/v1/chat/completions/control", self.control),
        ]

    async def props(self, call: Call) -> Response:
        name = call.query.get("model")
        if not name and not self._services.catalogue.single:
            return json_reply(self._router_props())
        model = self._services.model(call, name)
        report = self._services.owner.status(model.key)
        sleeping = report is not None and report.state == "sleeping"
        return json_reply(model_props(model, self._services.owner.info(model.key), sleeping=sleeping))

    def _router_props(self) -> dict[str, Any]:
        settings = self._services.settings
        return {
            "role": "router",
            "max_instances": settings.models_max,
            "models_autoload": settings.autoload,
            "model_alias": "llama-server",
            "model_path": "none",
            "default_generation_settings": {"params": None, "n_ctx": 0},
            "ui_settings": {},
            "build_info": FINGERPRINT,
            "cors_proxy_enabled": False,
        }

    async def change_props(self, call: Call) -> Response:
        raise not_supported("This server does not support changing global properties.")

    async def slots(self, call: Call) -> Response:
        if not self._services.settings.slots_endpoint:
            raise not_supported("This server does not support slots endpoint. Start it with `--slots`")
        model = self._services.model(call, None)
        report = self._services.owner.status(model.key)
        slots = () if report is None else report.slots
        if call.query.get("fail_on_no_slot") and not any(slot.state == "idle" for slot in slots):
            raise ApiError(503, "unavailable_error", "no slot available")
        info = self._services.owner.info(model.key)
        return json_reply([slot_view(slot, info) for slot in slots])

    async def act_on_slot(self, call: Call) -> Response:
        id = call.params["id"]
        if not id.isdecimal() or len(id) > 9:
            raise invalid("Invalid slot ID", "id")
        action = call.query.get("action", "")
        if action not in ("save", "restore", "erase"):
            raise invalid("Invalid action", "action")
        body = await call.body()
        request = decode(_slot, body) if body.strip() else SlotRequest()
        model = self._services.model(call, request.model)
        filename = request.filename or ""
        if action != "erase":
            _check_filename(filename)
        work = SlotAction(request=0, slot=int(id), action=action, filename=filename)
        encoder = SingleBody(lambda answer: slot_action(answer, work))
        return self._services.answer(call, sse.random_id("slot-"), model, work, encoder)

    async def adapters(self, call: Call) -> Response:
        model = self._services.model(call, None)
        view = self._services.owner.view(model.key)
        specs = model.parameters.adapters if model.parameters is not None else ()
        if not specs or view is None or view.status not in ("loaded", "loading", "sleeping"):
            # A look does not load a model; what it would have is in its configuration.
            return json_reply([_adapter(index, spec.path, spec.scale) for index, spec in enumerate(specs)])
        work = ListAdapters(request=0)
        return self._services.answer(call, sse.random_id("lora-"), model, work, SingleBody(_listed))

    async def set_adapters(self, call: Call) -> Response:
        scales = decode(_adapters, await call.body())
        model = self._services.model(call, None)
        work = SetAdapters(request=0, scales=tuple(LoraScale(entry.id, entry.scale) for entry in scales))
        return self._services.answer(call, sse.random_id("lora-"), model, work, SingleBody(_set))

    async def control(self, call: Call) -> Response:
        request = decode(_control, await call.body())
        if not request.id:
            raise invalid("'id' is required", "id")
        if request.action != "reasoning_end":
            raise invalid("action: expected reasoning_end", "action")
        ticket = self._services.inference.find(request.id, owner_of(call))
        if ticket is None or ticket.stream.ended:
            return json_reply({"success": False, "message": "no running completion has this id"})
        ended = [self._services.owner.end_reasoning(number) for number in ticket.requests]
        if not any(ended):
            return json_reply({"success": False, "message": "the completion has not begun"})
        return json_reply({"success": True})


def model_props(model: Model, info: ModelInfo | None, *, sleeping: bool) -> dict[str, Any]:
    """The properties of one model; before its first load, as far as its file tells them."""
    parameters = model.parameters
    facts = model.facts
    defaults = Generate(request=0, prompt=_EMPTY, sampling=model.request.sampling, max_tokens=model.request.max_tokens)
    return {
        "default_generation_settings": {
            "params": generation_settings(defaults, model.request.sampling.seed or 0),
            "n_ctx": info.n_ctx_slot if info is not None else (parameters.ctx_size if parameters is not None else 0),
        },
        "total_slots": parameters.slots if parameters is not None else 0,
        "model_alias": model.id,
        "model_ftype": info.ftype if info is not None else (facts.file_type if facts is not None else ""),
        "model_path": model.path,
        "modalities": {
            "vision": "image" in model.input_modalities,
            "audio": "audio" in model.input_modalities,
            "video": False,
        },
        "media_marker": MEDIA_MARKER,
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "ui": True,
        "ui_settings": {},
        "chat_template": (info.chat_template if info is not None else "") or (facts.chat_template if facts else ""),
        "chat_template_tool_use": info.chat_template_tool_use if info is not None else "",
        "chat_template_caps": {},
        "bos_token": info.bos_token if info is not None else "",
        "eos_token": info.eos_token if info is not None else "",
        "build_info": info.engine if info is not None else FINGERPRINT,
        "is_sleeping": sleeping,
        "cors_proxy_enabled": False,
    }


def slot_view(slot: SlotStatus, info: ModelInfo | None) -> dict[str, Any]:
    """One slot. Texts of prompts and answers are never shown."""
    value: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": info.n_ctx_slot if info is not None else 0,
        "speculative": False,
        "is_processing": slot.state in ("prefill", "decode"),
        "state": slot.state,
    }
    if slot.request:
        value.update(
            id_task=slot.request,
            n_prompt_tokens=slot.n_prompt,
            n_prompt_tokens_processed=slot.n_prompt_done,
            n_prompt_tokens_cache=slot.n_prompt_cached,
            next_token=[
                {
                    "has_next_token": True,
                    "n_remain": slot.n_limit - slot.n_decoded if slot.n_limit >= 0 else -1,
                    "n_decoded": slot.n_decoded,
                }
            ],
        )
    return value


def slot_action(answer: Answer, work: SlotAction) -> dict[str, Any] | None:
    if not isinstance(answer, SlotActionDone):
        return None
    if work.action == "erase":
        return {"id_slot": work.slot, "n_erased": answer.n_tokens}
    tokens, size, time = (
        ("n_saved", "n_written", "save_ms") if work.action == "save" else ("n_restored", "n_read", "restore_ms")
    )
    return {
        "id_slot": work.slot,
        "filename": work.filename,
        tokens: answer.n_tokens,
        size: answer.n_bytes,
        "timings": {time: answer.ms},
    }


def _check_filename(filename: str) -> None:
    """A bare name: it may not lead out of the folder of slot files."""
    bad = not filename or filename in (".", "..") or any(char in "/\\:\0" or ord(char) < 32 for char in filename)
    if bad or len(filename.encode()) > 200:
        raise invalid("Invalid filename", "filename")


def _adapter(id: int, path: str, scale: float, task_name: str = "", prompt_prefix: str = "") -> dict[str, Any]:
    return {"id": id, "path": path, "scale": scale, "task_name": task_name, "prompt_prefix": prompt_prefix}


def _listed(answer: Answer) -> list[dict[str, Any]] | None:
    if not isinstance(answer, Adapters):
        return None
    return [
        _adapter(entry.id, entry.path, entry.scale, entry.task_name, entry.prompt_prefix) for entry in answer.adapters
    ]


def _set(answer: Answer) -> dict[str, bool] | None:
    return {"success": True} if isinstance(answer, Adapters) else None
