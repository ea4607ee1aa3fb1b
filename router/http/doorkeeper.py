"""Who may come in: the key, the web page and the host name of a request, judged by `router.security`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.http.errors import ApiError
from router.http.replies import Reply
from router.security.access import AccessPolicy, Verdict
from router.security.keys import Key, presented_key
from router.security.origins import allowed_origin, host_allowed

ALLOWED_METHODS = b"GET, POST, DELETE, OPTIONS"


class Doorkeeper:
    """`check_hosts` refuses host names that are not of this machine as long as there are no keys: a page that has its
    own name resolve to 127.0.0.1 could otherwise read answers. `own_names` are further names that pass.
    """

    def __init__(
        self,
        policy: AccessPolicy,
        *,
        cors_origins: Sequence[str] = ("localhost",),
        check_hosts: bool = False,
        own_names: Sequence[str] = (),
    ) -> None:
        self.policy = policy
        self._cors_origins = tuple(cors_origins)
        self._check_hosts = check_hosts
        self._own_names = tuple(own_names)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Raise `ApiError` 403 for a name that a rebinding attack could have brought here."""
        if self._check_hosts and not self.policy.needs_key:
            host = headers.get("host", "")
            if host and not host_allowed(host, self._own_names):
                raise ApiError(403, "permission_error", f"'{host}' is not a name of this gateway")

    def admit(self, method: str, path: str, headers: Mapping[str, str]) -> Key | None:
        """The key of a request that may pass. Raises `ApiError` 401, 403 or 404."""
        presented = presented_key(headers.get("authorization"), headers.get("x-api-key"))
        verdict, key = self.policy.judge(method, path, presented)
        if verdict is Verdict.UNAUTHENTICATED:
            raise ApiError(401, "authentication_error", "Invalid API Key")
        if verdict is Verdict.FORBIDDEN:
            raise ApiError(403, "permission_error", "this API key does not have the scope for this")
        if verdict is Verdict.UNKNOWN:
            raise ApiError(404, "not_found_error", "File Not Found")
        return key

    def cors_headers(self, origin: str) -> list[tuple[bytes, bytes]]:
        """What to add to every answer to a page of this origin."""
        vary = (b"vary", b"Origin")
        allowed = allowed_origin(origin, self._cors_origins)
        if allowed is None:
            return [vary]
        return [
            vary,
            (b"access-control-allow-origin", allowed.encode("latin-1", "replace")),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", b"X-Request-Id, Request-Id, Retry-After"),
        ]

    def preflight(self, origin: str, headers: Mapping[str, str]) -> Reply:
        """The answer to OPTIONS; the headers above are added to it as to any other."""
        if allowed_origin(origin, self._cors_origins) is None:
            return Reply(b"", media_type=b"text/html")
        wanted = headers.get("access-control-request-headers", "*")
        return Reply(
            b"",
            media_type=b"text/html",
            headers=[
                (b"access-control-allow-methods", ALLOWED_METHODS),
                (b"access-control-allow-headers", wanted.encode("latin-1", "replace")),
                (b"access-control-max-age", b"600"),
            ],
        )
