"""The table of routes. Which key opens which of them is `router.security.scopes`' to say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from starlette.routing import compile_path

from router.http.call import Call, Response
from router.http.errors import ApiError, Dialect

Handler = Callable[[Call], Awaitable[Response]]


class Route(NamedTuple):
    """`path` may hold `{name}` parameters, `{name:path}` where slashes belong to the value."""

    method: str
    path: str
    handler: Handler
    dialect: Dialect = Dialect.OPENAI


class RouteTable:
    """Finds a route by exact path in one look-up; paths with parameters are tried in order afterwards."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[Callable[[str], Mapping[str, str] | None], dict[str, Route]]] = []
        patterns: dict[str, dict[str, Route]] = {}
        for route in routes:
            where = patterns if "{" in route.path else self._exact
            methods = where.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"two routes for {route.method} {route.path}")
            methods[route.method] = route
        for path, methods in patterns.items():
            self._patterns.append((_matcher(path), methods))

    def __iter__(self) -> Iterator[Route]:
        for methods in (*self._exact.values(), *(methods for _, methods in self._patterns)):
            yield from methods.values()

    def dialect(self, path: str) -> Dialect:
        """Whose error shapes a path speaks, whatever the method and whether or not there is such a route."""
        for route in self._exact.get(path, {}).values():
            return route.dialect
        return Dialect.OLLAMA if path.startswith("/api/") else Dialect.OPENAI

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route and its parameters. Raises `ApiError` 404 or 405."""
        methods = self._exact.get(path)
        if methods is not None:
            return _pick(methods, method), {}
        for match, methods in self._patterns:
            params = match(path)
            if params is not None:
                return _pick(methods, method), params
        raise ApiError(404, "not_found_error", "File Not Found")


def _matcher(path: str) -> Callable[[str], Mapping[str, str] | None]:
    pattern, _, _ = compile_path(path)

    def match(candidate: str) -> Mapping[str, str] | None:
        found = pattern.match(candidate)
        return None if found is None else found.groupdict()

    return match


def _pick(methods: dict[str, Route], method: str) -> Route:
    route = methods.get(method)
    if route is None and method == "HEAD":
        route = methods.get("GET")
    if route is None:
        allowed = ", ".join(sorted(methods))
        raise ApiError(405, "method_not_allowed", f"{method} is not allowed here, but {allowed}")
    return route
