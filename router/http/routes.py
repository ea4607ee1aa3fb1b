"""All routes of the gateway."""

from __future__ import annotations

from router.http.anthropic import Messages
from router.http.counting import TokenCounters
from router.http.downloads import DownloadRoutes
from router.http.embeddings import Embeddings
from router.http.events import Events
from router.http.logs import Logs
from router.http.metrics import MetricsRoutes
from router.http.models import Models
from router.http.native_completion import NativeCompletions
from router.http.native_server import NativeServer
from router.http.native_text import NativeText
from router.http.ollama import Ollama
from router.http.ollama_models import OllamaModels
from router.http.ollama_pull import OllamaPull
from router.http.openai_chat import ChatCompletions
from router.http.openai_completions import Completions
from router.http.openai_responses import Responses
from router.http.openapi import OpenApi
from router.http.ops import Ops
from router.http.rerank import Reranking
from router.http.routing import Route
from router.http.services import Services
from router.http.streams import Streams
from router.http.transcriptions import Transcriptions
from router.http.ui import Ui

FAMILIES = (
    Ops,
    ChatCompletions,
    Completions,
    Responses,
    NativeCompletions,
    NativeText,
    Messages,
    TokenCounters,
    Ollama,
    OllamaModels,
    OllamaPull,
    Embeddings,
    Reranking,
    Transcriptions,
    NativeServer,
    Streams,
    Events,
    Models,
    DownloadRoutes,
    Logs,
    MetricsRoutes,
    Ui,
)


def routes(services: Services) -> list[Route]:
    description = OpenApi(services)
    found = [route for family in FAMILIES for route in family(services).routes()]
    found.extend(description.routes())
    description.all = found
    return found
