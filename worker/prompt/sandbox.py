"""The Jinja environment of chat templates: what published ones rely on, and nothing that reaches outside.

Jinja's own sandbox keeps templates from Python's internals but lets them run for ever and fill memory. Here the
syntax tree is rewritten before it is compiled, so that each loop iteration and macro call is counted, and every
operation that can make a long text out of a short one asks first.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, NoReturn

import jinja2
from jinja2 import filters, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import SandboxedEnvironment, modifies_known_mutable
from jinja2.visitor import NodeTransformer

from worker.prompt.limits import Meter, RenderLimits, flat_size

MAX_INT_BITS = 256
_WIDE_FORMAT = re.compile(r"\d{6,}|\*")
ALLOWED_CHANGES = frozenset({"append", "extend", "insert", "pop", "update"})
"""Changes of lists and mappings that published templates make. Who renders gives them values that may change."""
_GROWING_METHODS = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs"})


class RaisedByTemplate(jinja2.TemplateError):
    """`raise_exception(...)` in a template: a message meant for the user."""


class GenerationTag(Extension):
    """`{% generation %}`…`{% endgeneration %}`, which training tools use to find the answer; here it only encloses."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Metering(NodeTransformer):
    """Puts the counting and the size checks into a template's syntax tree."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("count_step")))
        if node.test is not None:
            node.test = nodes.And(_environment_call("count_step"), node.test)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("count_step")))
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_environment_call("count_step")))
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:
        self.generic_visit(node)
        node.node = _environment_call("keep", node.node)
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:
        self.generic_visit(node)
        node.filter = nodes.Filter(node.filter, "_keep", [], [], None, None)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _environment_call("concatenate", *node.nodes)


def _environment_call(name: str, *args: nodes.Node) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)


class TemplateEnvironment(SandboxedEnvironment):
    """Compiles and runs one model's templates. Used by one thread at a time.

    `now` gives the local time that templates see.
    """

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, now: Callable[[], datetime.datetime] = datetime.datetime.now) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
        self.meter = Meter(RenderLimits())
        self._now = now
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = self._strftime_now
        self.filters["tojson"] = self._to_json
        self.filters["_keep"] = self.keep
        self.filters["safe"] = str
        self.filters["center"] = self._center
        self.filters["indent"] = self._indent
        self.filters["format"] = self._format
        self.filters["replace"] = self._replace
        self.filters["join"] = self._join
        self.filters["batch"] = self._batch
        self.filters["slice"] = self._slice

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if modifies_known_mutable(obj, attr) and attr not in ALLOWED_CHANGES:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        rewritten: nodes.Template = _Metering().visit(tree)
        rewritten.set_environment(self)
        return rewritten

    def count_step(self) -> bool:
        return self.meter.step()

    def keep(self, value: Any) -> Any:
        return self.meter.bounded(value)

    def concatenate(self, *values: Any) -> str:
        texts = [str(value) for value in values]
        self.meter.charge(flat_size(texts))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            self._check_power(left, right)
        elif operator == "+":
            self._check_sum(left, right)
        elif operator == "%" and isinstance(left, str):
            self._check_format(left)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            __self._check_method(owner, getattr(__obj, "__name__", ""), args, kwargs)
        elif isinstance(owner, (list, dict)):
            __self.meter.charge_items(len(owner) + sum(len(arg) for arg in args if isinstance(arg, Sized)))
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if isinstance(getattr(value, "__self__", None), str) and getattr(value, "__name__", "") in {
            "format",
            "format_map",
        }:
            self._check_format(value.__self__)
        return super().wrap_str_format(value)

    def _check_sum(self, left: Any, right: Any) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self.meter.charge(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            self.meter.charge_items(len(left) + len(right))

    def _check_product(self, left: Any, right: Any) -> None:
        for sequence, count in ((left, right), (right, left)):
            if isinstance(sequence, str) and isinstance(count, int):
                self.meter.charge(len(sequence) * count)
            elif isinstance(sequence, (list, tuple)) and isinstance(count, int):
                self.meter.charge_items(len(sequence) * count)
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INT_BITS:
            raise SecurityError("the template multiplies numbers that are too large")

    def _check_power(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() * max(right, 1) > MAX_INT_BITS:
            raise SecurityError("the template raises a number to a power that is too large")

    def _check_format(self, text: str) -> None:
        if _WIDE_FORMAT.search(text):
            raise SecurityError("the template formats with a width that is too large")

    def _check_method(self, owner: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if name in _GROWING_METHODS:
            width = next((value for value in (*args, *kwargs.values()) if isinstance(value, int)), 8)
            self.meter.charge(width * (1 + owner.count("\t")) if name == "expandtabs" else width)
        elif name == "replace" and len(args) >= 2:
            self._check_replacement(owner, str(args[0]), str(args[1]))
        elif name == "join" and args and isinstance(args[0], (list, tuple)):
            self.meter.charge(flat_size(args[0]) + len(owner) * len(args[0]))
        elif name == "translate":
            raise SecurityError("str.translate is not available to templates")

    def _check_replacement(self, text: str, old: str, new: str) -> None:
        self.meter.charge(len(text) + text.count(old) * len(new))

    def _strftime_now(self, text: str) -> str:
        self._check_format(text)
        return self._now().strftime(text)

    def _to_json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: Iterable[str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As `transformers` defines it: no HTML escapes, keys in their order."""
        if isinstance(value, Undefined):
            raise jinja2.UndefinedError("tojson was given an undefined value")
        if isinstance(indent, (int, str)) and (indent if isinstance(indent, int) else len(indent)) > 64:
            raise SecurityError("the template indents JSON by more than 64 characters")
        pair = tuple(separators) if separators is not None else None
        return json.dumps(
            value,
            ensure_ascii=bool(ensure_ascii),
            indent=indent,
            separators=(pair[0], pair[1]) if pair is not None else None,
            sort_keys=bool(sort_keys),
            default=self._listed,
        )

    def _listed(self, value: Any) -> list[Any]:
        """What `map` and its like give, which JSON knows as a list."""
        if not isinstance(value, Iterator):
            raise TypeError(f"{type(value).__name__} cannot be written as JSON")
        items = list(islice(value, self.meter.limits.items))
        self.meter.charge_items(len(items) + 1)
        return items

    def _center(self, value: str, width: int = 80) -> str:
        self.meter.charge(width)
        return filters.do_center(value, width)

    def _indent(self, s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        margin = width if isinstance(width, int) else len(width)
        self.meter.charge(len(s) + margin * (s.count("\n") + 1))
        return filters.do_indent(s, width, first, blank)

    def _format(self, value: str, *args: Any, **kwargs: Any) -> str:
        self._check_format(str(value))
        return filters.do_format(value, *args, **kwargs)

    def _replace(self, s: str, old: str, new: str, count: int | None = None) -> str:
        text = str(s)
        self._check_replacement(text, str(old), str(new))
        return text.replace(str(old), str(new), -1 if count is None else count)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        items: Iterable[Any] = value
        if attribute is not None:
            items = map(filters.make_attrgetter(self, attribute), value)
        texts = [str(item) for item in items]
        self.meter.charge(flat_size(texts) + len(d) * len(texts))
        return str(d).join(texts)

    def _batch(self, value: Iterable[Any], linecount: int, fill_with: Any = None) -> Iterable[list[Any]]:
        self.meter.charge_items(linecount)
        return filters.do_batch(value, linecount, fill_with)

    def _slice(self, value: Collection[Any], slices: int, fill_with: Any = None) -> Iterable[list[Any]]:
        self.meter.charge_items(slices)
        return filters.sync_do_slice(value, slices, fill_with)


def _raise_exception(message: object) -> NoReturn:
    raise RaisedByTemplate(str(message))
