"""The options with which an agent is joined to a service elsewhere: its address, its token, and what the node offers.

They may stand in variables instead, which is what a unit of systemd and a program that starts agents have.
"""

from __future__ import annotations

import argparse
import os
import re
import ssl
from pathlib import Path

from trials.agent import bounds
from trials.agent.home import Home
from trials.agent.ways import JoinedWay, TokenFileError, ToldWay, join_fault, token_in
from trials.wire.certificates import known_by
from trials.wire.nodes import LABEL, LABELS_LIMIT

_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([kmgt]?)(i?)b?")


def add_join_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--join", action="append", metavar="URL", help="the service's address; several: the first that answers"
    )
    parser.add_argument("--told", action="store_true", help="joined to the service that HOME/service.json names")
    parser.add_argument("--token-file", type=Path, metavar="F", help="with --join: the file that has the agent's token")
    parser.add_argument("--ca", type=Path, metavar="F", help="with --join: the certificates that are trusted, as PEM")
    parser.add_argument("--insecure-network", action="store_true", help="with --join: http:// beyond this machine")
    parser.add_argument("--label", action="append", type=_label, metavar="K=V", help="of the node; may be repeated")
    parser.add_argument("--cpus", type=_count, metavar="N", help="cores that trials may use (default: all)")
    parser.add_argument("--memory", type=_size, metavar="SIZE", help="as 32GiB: what trials may use (default: all)")
    parser.add_argument(
        "--bandwidth", type=_size, metavar="SIZE", help="as 50MB: of files, a second, both ways together (default: any)"
    )
    parser.add_argument(
        "--devices", type=_devices, metavar="LIST", help="UUIDs or numbers of GPUs, or none (default: all)"
    )


def join_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> JoinedWay | ToldWay | None:
    """None where it is the agent of its own home's service. What the node offers is put into this process's variables.

    Ends the process with what to do where the options make no sense.
    """
    offers = {bounds.CPUS: options.cpus, bounds.MEMORY_BYTES: options.memory, bounds.DEVICES: options.devices}
    offers[bounds.BANDWIDTH] = options.bandwidth
    os.environ.update({name: str(value) for name, value in offers.items() if value is not None})
    if options.label:
        names = [entry.partition("=")[0] for entry in options.label]
        if len(set(names)) < len(names) or len(names) > LABELS_LIMIT:
            parser.error(f"--label: each name once, and {LABELS_LIMIT} of them at most")
        os.environ[bounds.LABELS] = ",".join(options.label)
    if options.told:
        return ToldWay(Home(options.home))
    if not options.join:
        if options.token_file or options.ca or options.insecure_network:
            parser.error("--token-file, --ca and --insecure-network belong to --join URL")
        return None
    if options.token_file is None:
        parser.error(
            "--join needs --token-file F: `tuner token add NAME --role agent --file F`, where the service is, makes it"
        )
    try:
        token_in(options.token_file)
    except TokenFileError as error:
        parser.error(str(error))
    if options.ca is not None and (why := _no_certificates(options.ca)) is not None:
        parser.error(f"the file of the certificates, {options.ca}, cannot be used: {why}")
    urls = tuple(url.rstrip("/") for url in options.join)
    if fault := join_fault(urls, may_be_plain=options.insecure_network):
        parser.error(fault)
    return JoinedWay(urls, token_file=options.token_file.resolve(), ca=options.ca)


def _no_certificates(file: Path) -> str | None:
    """Why nobody can be known by what is in the file; None where somebody can."""
    try:
        known_by(str(file))
    except ssl.SSLError:
        return "it holds no certificates in PEM"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _label(text: str) -> str:
    if not LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"a label is NAME=VALUE of letters, digits and ._-/:, not {text!r:.100}")
    return text


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 100_000:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on, not {text!r:.40}")
    return int(text)


def _size(text: str) -> int:
    """Bytes, of what is written as 800MiB, 8GB or 2g."""
    match = _SIZE.fullmatch(text.replace(" ", "").lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"a size such as 800MiB or 8GB, not {text!r:.40}")
    number, unit, binary = match.groups()
    base = 1024 if binary or text[-1:].lower() != "b" else 1000
    return int(float(number) * base ** ("kmgt".index(unit) + 1 if unit else 0))


def _devices(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("UUIDs or numbers separated by commas, or none")
    return ",".join(names)
