"""What may come next on a command line: commands and options as the parser has them, experiments as the service has.

A shell asks at every TAB, so this never fails, says nothing of what went wrong, and ends within ``PATIENCE_S`` seconds
whatever the service does. What it offers needs no quotes in any shell: what others called their experiments is typed
into the command line of whoever presses TAB.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Thread

from tuner_service.cli.context import LAST, resolve_experiment, settings_of
from tuner_service.cli.main import build_parser
from tuner_service.client import Client
from tuner_service.local_service import find_service

PATIENCE_S = 1.0  # for a service that hangs
MOST_OFFERED = 100  # experiments, the newest, and trials of one
SHOWN = 60  # characters of a description
WORD = ":word"
FILES, FOLDERS = ":files", ":folders"
_EXPERIMENT = {"EXPERIMENT", "OTHER", "EXPERIMENT/NUMBER", "EXPERIMENT[/NUMBER]"}
_PATHS = {"FILE": FILES, "FILE|URL": FILES, "FOLDER|URL": FOLDERS, "DIR|ASSET": FILES, "DIR": FOLDERS, "NAME": FOLDERS}
_SIMPLE = re.compile(r"[\w.@+%,][\w.@+%,/-]*")  # what no shell reads as anything else
_CONNECTION = ("home", "url", "profile")


@dataclass(frozen=True, kw_only=True)
class Offer:
    value: str
    about: str = ""


@dataclass(kw_only=True)
class Completed:
    """``word`` is the one at the cursor, unquoted; ``kind`` says whether the shell should offer paths as well."""

    word: str
    kind: str = ""
    offers: list[Offer] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        for offer in self.offers:
            about = "".join(c if c.isprintable() else " " for c in offer.about)[:SHOWN].strip()
            yield f"{offer.value}\t{about}" if about else offer.value


def completed(line: str) -> Completed:
    """``line``: what is typed up to the cursor, from the name of the command on."""
    *before, word = split(line)
    parser = build_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001  # argparse shows it to nobody
    if len(before) <= 1:
        offers = [Offer(value=o, about=parser_option.help or "") for o, parser_option in _options(parser)]
        offers += [Offer(value=a.dest, about=a.help or "") for a in commands._choices_actions]  # noqa: SLF001  # likewise
        found = Completed(word=word, offers=[o for o in offers if word.startswith("-") or not o.value.startswith("-")])
    elif before[1] in commands.choices:
        found = _Walk(commands.choices[before[1]]).over(before[2:], word)
    else:
        found = Completed(word=word)
    found.offers = [offer for offer in found.offers if offer.value.startswith(word)]
    return found


class _Walk:
    """Along the words of one command, to the option or the place that the word at the cursor is for."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._places = [a for a in parser._actions if not a.option_strings]  # noqa: SLF001  # argparse shows it to nobody
        self._typed: dict[str, str] = {}

    def over(self, words: Sequence[str], word: str) -> Completed:
        option: argparse.Action | None = None
        place, only_places = 0, False
        for one in words:
            if option is not None:
                self._typed[option.dest], option = one, None
            elif not only_places and one.startswith("-") and one != "-":
                only_places = one == "--"
                option = self._option_of(one)
            else:
                place += 1
        if option is not None:
            return self._of(option, word)
        if word.startswith("-") and not only_places:
            return self._of_option(word)
        if not self._places or (place >= len(self._places) and self._places[-1].nargs != "+"):
            return Completed(word=word)
        return self._of(self._places[min(place, len(self._places) - 1)], word)

    def _option_of(self, typed: str) -> argparse.Action | None:
        """The option whose value comes next."""
        name, equals, value = typed.partition("=")
        action = self._parser._option_string_actions.get(name)  # noqa: SLF001  # argparse shows it to nobody
        if action is not None and equals:
            self._typed[action.dest] = value
        return None if action is None or equals or action.nargs == 0 else action

    def _of_option(self, word: str) -> Completed:
        name, equals, value = word.partition("=")
        if not equals:
            offers = [Offer(value=option, about=action.help or "") for option, action in _options(self._parser)]
            return Completed(word=word, offers=offers)
        action = self._parser._option_string_actions.get(name)  # noqa: SLF001  # argparse shows it to nobody
        found = Completed(word=value) if action is None or action.nargs == 0 else self._of(action, value)
        offers = [Offer(value=f"{name}={offer.value}", about=offer.about) for offer in found.offers]
        return Completed(word=word, kind=found.kind, offers=offers)

    def _of(self, action: argparse.Action, word: str) -> Completed:
        metavar = str(action.metavar or "")
        if action.choices is not None:
            return Completed(word=word, offers=[Offer(value=str(choice)) for choice in action.choices])
        if metavar in _EXPERIMENT:
            connection = argparse.Namespace(**{name: self._typed.get(name) for name in _CONNECTION})
            return Completed(word=word, offers=asked(connection, word, with_trials="NUMBER" in metavar))
        is_of_path = metavar != "NAME" or self._parser.prog.endswith(" init")
        return Completed(word=word, kind=_PATHS.get(metavar, "") if is_of_path else "")


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for option, action in parser._option_string_actions.items():  # noqa: SLF001  # argparse shows it to nobody
        if option.startswith("--") and action.help != argparse.SUPPRESS:
            yield option, action


# ── the service ─────────────────────────────────────────────────────────────────────────────────
def asked(connection: argparse.Namespace, word: str, *, with_trials: bool) -> list[Offer]:
    """Nothing where no service answers soon enough."""
    offers: list[Offer] = []

    def ask() -> None:
        try:
            client = find_service(settings_of(connection))
            if client is None:
                return
            reference, slash, _ = word.rpartition("/")
            found = _trials(client, reference) if with_trials and slash else _experiments(client, word)
            offers.extend(o for o in found if _SIMPLE.fullmatch(o.value) and o.value.isprintable())
        except Exception:  # noqa: BLE001  # whatever it is, it does not belong into somebody's command line
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return list(offers)


def _experiments(client: Client, word: str) -> list[Offer]:
    """The newest by id and by name; where none of them begins so, older ones that do."""
    newest = _page(client, {})
    offers = _named(newest)
    if newest and LAST.startswith(word):
        offers.insert(0, Offer(value=LAST, about=_about(newest[0])))
    if not any(offer.value.startswith(word) for offer in offers):
        offers = _named(_page(client, {"name": word}))
    return offers


def _page(client: Client, query: dict[str, str]) -> list[dict[str, object]]:
    answer = client.call(
        "GET", "/api/v1/experiments", query={**query, "limit": MOST_OFFERED}, timeout_s=PATIENCE_S
    ).json()
    return list(answer["items"])


def _named(experiments: Sequence[dict[str, object]]) -> list[Offer]:
    by_id = [Offer(value=str(view["id"]), about=_about(view)) for view in experiments]
    names = dict.fromkeys(str(view["name"]) for view in experiments)
    return by_id + [Offer(value=name) for name in names]


def _about(view: dict[str, object]) -> str:
    return f"{view['name']}, {view['status']}"


def _trials(client: Client, reference: str) -> list[Offer]:
    experiment = client.experiment(resolve_experiment(client, reference))
    last = sum(experiment["counts"].values())
    best = [Offer(value=f"{reference}/best")] if experiment["best"] is not None else []
    return best + [Offer(value=f"{reference}/{number}") for number in range(last, max(0, last - MOST_OFFERED), -1)]


# ── words ───────────────────────────────────────────────────────────────────────────────────────
def split(line: str) -> list[str]:
    """The words of ``line`` without their quotes; the last one, which the cursor is in, may be empty or unfinished."""
    words, quote, is_escaped, in_word = [""], "", False, False
    for sign in line:
        if is_escaped:
            words[-1], is_escaped = words[-1] + sign, False
        elif sign == "\\" and quote != "'":
            is_escaped = in_word = True
        elif quote:
            words[-1], quote = (words[-1], "") if sign == quote else (words[-1] + sign, quote)
        elif sign in "\"'":
            quote, in_word = sign, True
        elif sign.isspace():
            words += [""] if in_word else []
            in_word = False
        else:
            words[-1], in_word = words[-1] + sign, True
    return words
