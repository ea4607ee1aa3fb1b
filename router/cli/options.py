"""Command-line options made from the table of options, for `serve` and `check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from router.config.flags import OPTIONS
from router.config.lookup import nearest_flag
from router.config.option import Assignment, Option, Target

F = TypeVar("F", bound=Callable[..., Any])

_TITLES = {
    Target.SOURCE: "One model",
    Target.SERVER: "The gateway",
    Target.MODEL: "All models: treatment",
    Target.LOAD: "All models: loading",
    Target.DRAFT: "All models: loading",
    Target.WORKER: "All models: running",
    Target.SAMPLING: "All models: what requests start from",
    Target.REQUEST: "All models: what requests start from",
}
_HIDDEN = (Target.IGNORED, Target.REFUSED)


class TableCommand(click.Command):
    """A command with all options of the table. Its context's `obj` is the tuple of what was given, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_parameter(option) for option in OPTIONS if not option.preset_only)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = []
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = nearest_flag(error.option_name)
            raise click.UsageError(
                f"unknown option {error.option_name}" + (f"; did you mean {hint}?" if hint else ""), ctx
            ) from None
        ctx.obj = tuple(ctx.obj)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by what they are about, since there are many."""
        titles = {_parameter_name(option): _TITLES.get(option.target, "") for option in OPTIONS}
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in dict.fromkeys(_TITLES.values())}
        own: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = titles.get(parameter.name or "")
                (sections[title] if title else own).append(record)
        for title, records in (*sections.items(), ("Options", own)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _parameter(option: Option) -> click.Option:
    """The click option of one row. Values stay text: one parser reads them all, wherever they come from."""
    name = _parameter_name(option)
    shared: dict[str, Any] = {
        "expose_value": False,
        "help": _help(option),
        "hidden": option.target in _HIDDEN,
        "callback": _record(option),
        "default": None,
    }
    if option.is_switch:
        declarations = [*option.flags, *(f" /{flag}" for flag in option.off)]
        return click.Option([name, *declarations], is_flag=True, **shared)
    return click.Option(
        [name, *option.flags],
        type=click.STRING,
        metavar=option.metavar,
        multiple=option.many,
        nargs=option.words,
        **shared,
    )


def _parameter_name(option: Option) -> str:
    return "option_" + option.name.replace("-", "_").replace(".", "_")


def _help(option: Option) -> str:
    names = ", ".join(filter(None, (option.own_env, option.env)))
    return f"{option.help} [{names}]" if option.help else ""


def _record(option: Option) -> Callable[[click.Context, click.Parameter, Any], None]:
    def record(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is None or value == ():
            return
        if option.words > 1:
            value = " ".join(value)
        if isinstance(value, bool):
            off = option.off[-1] if option.off else f"--{option.name}"
            item = Assignment(option, ("on",), option.flags[-1]) if value else Assignment(option, ("off",), off)
        else:
            item = Assignment(option, value if isinstance(value, tuple) else (value,), option.flags[-1])
        ctx.obj.append(item)

    return record
