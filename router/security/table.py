"""The literal table of which route asks for what. What is not in it is denied."""

from __future__ import annotations

from dataclasses import dataclass

from router.security.scopes import Access

_TABLE: tuple[tuple[Access, str, tuple[str, ...]], ...] = (
    (Access.PUBLIC, "GET", ("/", "/index.html", "/ui/{file}", "/favicon.ico", "/health", "/v1/health", "/ready")),
    (
        Access.ANY,
        "GET",
        (
            "/models",
            "/v1/models",
            "/v1/models/{id:path}",
            "/props",
            "/version",
            "/openapi.json",
            "/api/tags",
            "/api/ps",
            "/api/version",
        ),
    ),
    (Access.ANY, "POST", ("/api/show",)),
    (
        Access.OBSERVE,
        "GET",
        ("/metrics", "/queue", "/models/sse", "/slots", "/lora-adapters", "/downloads", "/downloads/{id}"),
    ),
    (
        Access.INFER,
        "POST",
        (
            "/completion",
            "/completions",
            "/v1/completions",
            "/chat/completions",
            "/v1/chat/completions",
            "/v1/chat/completions/control",
            "/chat/completions/input_tokens",
            "/v1/chat/completions/input_tokens",
            "/responses",
            "/v1/responses",
            "/responses/input_tokens",
            "/v1/responses/input_tokens",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/audio/transcriptions",
            "/v1/audio/transcriptions",
            "/embedding",
            "/embeddings",
            "/v1/embeddings",
            "/rerank",
            "/reranking",
            "/v1/rerank",
            "/v1/reranking",
            "/infill",
            "/tokenize",
            "/detokenize",
            "/apply-template",
            "/v1/streams/lookup",
            "/api/generate",
            "/api/chat",
            "/api/embed",
            "/api/embeddings",
        ),
    ),
    (Access.INFER, "GET", ("/v1/stream",)),
    (Access.INFER, "DELETE", ("/v1/stream", "/requests/{id}")),
    (
        Access.MANAGE,
        "POST",
        (
            "/models",
            "/models/load",
            "/models/unload",
            "/models/pin",
            "/models/unpin",
            "/models/reload",
            "/props",
            "/slots/{id}",
            "/lora-adapters",
            "/downloads/pause",
            "/downloads/resume",
            "/api/pull",
            "/api/copy",
            "/log-level",
        ),
    ),
    (Access.MANAGE, "GET", ("/logs", "/log-level")),
    (Access.MANAGE, "DELETE", ("/models", "/downloads", "/downloads/{id}", "/api/delete")),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: what `method` asks for on the paths that `template` matches."""

    method: str
    template: str
    access: Access


RULES: tuple[Rule, ...] = tuple(
    Rule(method, template, access) for access, method, templates in _TABLE for template in templates
)
_EXACT = {(rule.method, rule.template): rule for rule in RULES if "{" not in rule.template}
_PATTERNS = tuple(rule for rule in RULES if "{" in rule.template)


def find_rule(method: str, path: str) -> Rule | None:
    """The rule for a request; HEAD is judged as GET. None: nobody may, as far as the table knows."""
    method = "GET" if method == "HEAD" else method
    exact = _EXACT.get((method, path))
    if exact is not None:
        return exact
    return next((rule for rule in _PATTERNS if rule.method == method and _matches(rule.template, path)), None)


def _matches(template: str, path: str) -> bool:
    """`{name}` stands for one segment, `{name:path}` for the rest of the path; neither stands for nothing."""
    wanted, given = template.split("/")[1:], path.split("/")[1:]
    for index, part in enumerate(wanted):
        if part.endswith(":path}"):
            return any(given[index:])
        if index >= len(given) or not given[index] or (part[0] != "{" and part != given[index]):
            return False
    return len(wanted) == len(given)
