"""`llamaherd chat`: a chat in the terminal."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Any

import click

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.conversation import Conversation, Reply
from router.cli.exits import Exit
from router.cli.listing import entries, state_word
from router.cli.remote import RemoteCommand, examples, print_json, remote

HELP = """\
/help            this text
/clear           begin anew
/system TEXT     set the system prompt and begin anew
/model NAME      talk to another model
/set NAME VALUE  set a field of the requests, e.g. /set temperature 0
/stats           show the last answer's numbers
/exit            leave (also Ctrl-D); Ctrl-C stops an answer"""


@click.command(
    "chat",
    cls=RemoteCommand,
    epilog=examples(
        "llamaherd chat",
        "llamaherd chat my-model 'Why is the sky blue?'",
        "git diff | llamaherd chat my-model 'Review this:'",
    ),
)
@remote
@click.argument("model", required=False)
@click.argument("prompt", nargs=-1)
@click.option("-s", "--system", help="System prompt.")
@click.option("-t", "--temperature", type=float, help="Sampling temperature.")
@click.option("-n", "--max-tokens", type=int, help="Tokens per answer.")
@click.option("--show-thoughts/--hide-thoughts", default=True, show_default=True, help="Show what the model thinks.")
@click.option("--json", "as_json", is_flag=True, help="Print one answer as JSON; needs a prompt.")
def command(
    client: Client,
    model: str | None,
    prompt: tuple[str, ...],
    system: str | None,
    temperature: float | None,
    max_tokens: int | None,
    show_thoughts: bool,
    as_json: bool,
) -> None:
    """Chat with a model. With a prompt, or text on standard input, it answers once and ends."""
    text = " ".join(prompt)
    if not sys.stdin.isatty():
        text = "\n\n".join(part for part in (text, sys.stdin.read().strip()) if part)
        if not text:
            raise ClientError("nothing was asked: standard input is empty", Exit.USAGE)
    if as_json and not text:
        raise ClientError("--json needs a prompt", Exit.USAGE)
    fields: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    conversation = Conversation(
        client, model or choose(client), system, {k: v for k, v in fields.items() if v is not None}
    )
    screen = Screen(show_thoughts)
    if text:
        reply = conversation.ask(text, Screen.silent() if as_json else screen)
        if as_json:
            print_json(
                {"model": reply.model, "content": reply.content, "reasoning": reply.reasoning, "usage": reply.usage}
            )
    else:
        talk(conversation, screen)


class Screen:
    """Prints an answer as it comes: thoughts dimmed, and on standard error what happens while nothing comes."""

    def __init__(self, show_thoughts: bool, *, quiet: bool = False) -> None:
        self._console = display.console()
        self._errors = display.console(sys.stderr)
        self._show_thoughts = show_thoughts
        self._quiet = quiet
        self._waiting = False
        self._begun = False

    @classmethod
    def silent(cls) -> Screen:
        return cls(False, quiet=True)

    def comment(self, text: str) -> None:
        """A sign of life of the gateway: `queued 2`, `loading 42%`."""
        if not self._quiet and self._errors.is_terminal and text:
            print(f"\r\033[2m{text}\033[0m\033[K", end="", file=sys.stderr, flush=True)
            self._waiting = True

    def thought(self, text: str) -> None:
        if self._show_thoughts and not self._quiet:
            self._begin()
            self._console.print(text, end="", style="dim italic", markup=False, soft_wrap=True)
            self._console.file.flush()

    def content(self, text: str) -> None:
        if not self._quiet:
            self._begin()
            print(text, end="", flush=True)

    def end(self) -> None:
        self._clear()
        if self._begun:
            print(flush=True)
            self._begun = False

    def _begin(self) -> None:
        self._clear()
        self._begun = True

    def _clear(self) -> None:
        if self._waiting:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._waiting = False


def choose(client: Client) -> str:
    """The model to talk to where none was named: the loaded one, or the only one. Raises `ClientError`."""
    found = entries(client)
    loaded = [entry["id"] for entry in found if state_word(entry) in ("loaded", "sleeping")]
    names = loaded or [entry["id"] for entry in found if state_word(entry) != "failed"]
    if len(names) == 1:
        return str(names[0])
    if not names:
        raise ClientError("there is no model to talk to; see `llamaherd models`", Exit.NOT_FOUND)
    raise ClientError(f"name one of the models: {', '.join(names[:10])}", Exit.USAGE)


def talk(conversation: Conversation, screen: Screen) -> None:
    """Read lines and answer them, until the end of input."""
    with contextlib.suppress(ImportError):
        # Importing it gives input() line editing and history, where the platform has it.
        importlib.import_module("readline")
    print(f"Talking to {conversation.model}. /help shows the commands, Ctrl-D leaves.")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return
        if not line:
            continue
        if line.startswith("/"):
            if not obey(conversation, line):
                return
            continue
        try:
            conversation.ask(line, screen)
        except ClientError as error:
            print(f"error: {error}", file=sys.stderr)
            if error.exit is Exit.DENIED:
                raise


def obey(conversation: Conversation, line: str) -> bool:
    """Run one command of the chat; False ends it."""
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    match name:
        case "exit" | "quit" | "bye":
            return False
        case "clear":
            conversation.clear()
        case "system":
            conversation.system = rest or None
            conversation.clear()
        case "model" if rest:
            conversation.model = rest
        case "set" if rest:
            field, _, value = rest.partition(" ")
            try:
                conversation.set(field, value.strip())
            except ValueError as error:
                print(f"{field}: {error}")
        case "stats":
            print(statistics(conversation.last))
        case _:
            print(HELP)
    return True


def statistics(reply: Reply | None) -> str:
    """The numbers of an answer in one line."""
    if reply is None:
        return "nothing has been answered yet"
    usage = reply.usage
    words = [
        f"{usage.get('prompt_tokens', 0)} prompt tokens ({reply.cached_tokens} cached)",
        f"{usage.get('completion_tokens', 0)} tokens",
        f"first after {display.duration(reply.first_after)}",
        f"in all {display.duration(reply.took)}",
    ]
    if reply.tokens_per_second:
        words.append(f"{reply.tokens_per_second:.1f} tokens/s")
    return ", ".join(words)
