from __future__ import annotations

import pytest

from router.security.access import AccessPolicy, Verdict
from router.security.keys import KeyRing, KeySpec
from router.security.scopes import Access, Scope
from router.security.table import RULES, find_rule

RING = KeyRing([KeySpec(f"{scope}-key", str(scope), frozenset({scope})) for scope in Scope])


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/models/user/repo:Q4_K_M", "/v1/models/{id:path}"),
        ("/slots/3", "/slots/{id}"),
        ("/ui/app.js", "/ui/{file}"),
        ("/health", "/health"),
    ],
)
def test_paths_find_their_rule(path: str, template: str) -> None:
    rule = find_rule("POST" if template.startswith("/slots") else "GET", path)
    assert rule is not None
    assert rule.template == template


@pytest.mark.parametrize(
    "path", ["/ui/", "/ui/a/b", "/v1/models/", "//health", "/health/", "", "health", "/HEALTH", "/slots/3", "/ui"]
)
def test_other_paths_find_none(path: str) -> None:
    assert find_rule("GET", path) is None


def test_head_is_judged_as_get_and_other_methods_are_not() -> None:
    assert find_rule("HEAD", "/metrics") == find_rule("GET", "/metrics")
    assert find_rule("PUT", "/metrics") is None
    assert find_rule("POST", "/health") is None


def test_no_rule_is_there_twice() -> None:
    assert len({(rule.method, rule.template) for rule in RULES}) == len(RULES)


def test_without_keys_all_that_is_known_is_allowed() -> None:
    policy = AccessPolicy(KeyRing())
    assert policy.judge("POST", "/models/load", "") == (Verdict.ALLOWED, None)
    assert policy.judge("POST", "/models/load", "whatever") == (Verdict.ALLOWED, None)
    assert policy.judge("PUT", "/models/load", "")[0] is Verdict.UNKNOWN
    assert policy.may(None, Scope.MANAGE)


@pytest.mark.parametrize("presented", ["", "wrong"])
def test_without_a_good_key_only_what_is_public_is_allowed(presented: str) -> None:
    policy = AccessPolicy(RING)
    for rule in RULES:
        path = rule.template.replace("{id:path}", "a/b").replace("{id}", "1").replace("{file}", "app.js")
        verdict, key = policy.judge(rule.method, path, presented)
        assert verdict is (Verdict.ALLOWED if rule.access is Access.PUBLIC else Verdict.UNAUTHENTICATED), rule
        assert key is None
    assert policy.judge("GET", "/nothing", presented)[0] is Verdict.UNAUTHENTICATED
    assert not policy.may(None, Scope.OBSERVE)


def test_a_key_that_does_not_reach_is_told_so() -> None:
    policy = AccessPolicy(RING)
    verdict, key = policy.judge("POST", "/models/unload", "infer-key")
    assert verdict is Verdict.FORBIDDEN
    assert key is not None
    assert key.name == "infer"
    assert policy.judge("GET", "/nothing", "infer-key")[0] is Verdict.UNKNOWN
    assert policy.judge("GET", "/metrics", "manage-key")[0] is Verdict.ALLOWED
    assert policy.judge("POST", "/v1/chat/completions", "observe-key")[0] is Verdict.FORBIDDEN
    assert policy.may(key, Scope.INFER)
    assert not policy.may(key, Scope.MANAGE)


def test_metrics_may_be_made_public_and_nothing_else_with_them() -> None:
    policy = AccessPolicy(RING, public_metrics=True)
    assert policy.judge("GET", "/metrics", "")[0] is Verdict.ALLOWED
    assert policy.judge("GET", "/queue", "")[0] is Verdict.UNAUTHENTICATED
