"""Files between the service and agents that share no folder with it: places they may name, and pieces as they come.

An agent names files as ``trials/wire/remote_files.py`` says; rows hold where they really lie. What is given and taken
is translated at the agent's connection, so nothing else of the service knows of it.

Uploads come in pieces. Those of one content, by its digest and size, are put together in one file, whoever sends them;
it gets its name once it is whole and has the digest.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from trials.files import write_atomically
from trials.stores import is_url
from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsFound
from trials.wire.launch import CheckpointRef
from trials.wire.limits import LOG_INLINE_BYTES, OUTPUT_BYTES_LIMIT
from trials.wire.log_streams import RANK_STREAMS_INLINE, STREAMS, file_of, stream_from, whole_characters
from trials.wire.manifests import PIECE_BYTES as ASSET_PIECE_BYTES
from trials.wire.manifests import digest_of_pieces, is_file_digest
from trials.wire.messages import Launch, LogChunk, ToAgent, Welcome
from trials.wire.paths import path_fault
from trials.wire.plain import ProtocolError
from trials.wire.remote_files import (
    ASSETS,
    CHECKPOINTS,
    LOGS,
    OWN,
    PIECE_BYTES,
    SECRETS,
    STAGING,
    remote,
)
from trials.wire.resources import STREAM as RESOURCES
from trials.wire.variables import NAME_OF_SECRET
from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError, NotAllowedError, NotFoundError, UnavailableError
from tuner_service.domain.trial import Attempt
from tuner_service.ports import Queries
from tuner_service.service.assets.asset_store import staging_of
from tuner_service.service.moved_home import place_now

RECEIVED = "nodes"  # the folder in a home of what nodes send
LINEAGES = "lineages"  # in it: the databases whose it may be, one a line
UNKNOWN = "unknown"  # in place of one: of what was there before there was a list
PARTS = "parts"  # of uploads, in the folder of what nodes send
PART_KEPT_S = 86_400.0  # of one that nobody went on with
CHECKPOINT_BYTES_LIMIT = 1 << 40
LOG_BYTES_LIMIT = 64 << 20  # of one stream
NUMBER_DIGITS = 9  # of a trial's
DAMAGED_KNOWN = 1_000  # files; of more, the oldest are read once more
_DIGEST = re.compile("[0-9a-f]{64}")
_NAME = re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")  # of a checkpoint
_FOLDER = re.compile(r"([0-9]{1,9})-(.{1,128})")  # of an attempt: its number and its nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Of ``size`` bytes with this SHA-256, to ``target``."""

    target: Path
    size: int
    digest: str


class _Seen(NamedTuple):
    """A file whose bytes do not have the digest: this one, as it was then."""

    digest: str
    inode: int
    modified_ns: int
    changed_ns: int


class NodeFiles:
    """Any thread; every call but the translations blocks.

    ``checkpoint_store`` and ``asset_store``: a folder of the service, or a URL, to which agents go themselves.
    """

    def __init__(  # noqa: PLR0913  # three places
        self,
        home: Path,
        queries: Queries,
        *,
        checkpoint_store: str,
        asset_store: str,
        staging: Path,
        lineage: str = "",
    ) -> None:
        self._home, self._queries, self._staging, self._lineage = home, queries, staging, lineage
        self._received = home / RECEIVED
        self._is_store_elsewhere, self._asset_store = is_url(checkpoint_store), asset_store
        named = checkpoint_store if checkpoint_store and not self._is_store_elsewhere else ""
        self._roots = {
            CHECKPOINTS: Path(named) if named else self._received / CHECKPOINTS,
            OWN: home / "checkpoints",
        }
        self._store = checkpoint_store
        self._writing = threading.Lock()  # held while these two are looked at
        self._open: set[str] = set()
        self._damaged: dict[Path, _Seen] = {}  # what lies in the place of an upload, and is not that; the newest last

    @classmethod
    def of(cls, settings: Settings, queries: Queries, *, lineage: str) -> NodeFiles:
        root, home = settings.asset_root, settings.home
        staging = staging_of(root, home=home, lineage=lineage)
        return cls(
            home,
            queries,
            checkpoint_store=settings.checkpoint_store,
            asset_store=root,
            staging=staging,
            lineage=lineage,
        )

    def begin(self, *, now: float) -> None:
        """At the start of a service."""
        self.drop_old_parts(now=now)
        if self._received.is_dir():
            with suppress(OSError):  # before anything of this database comes there it is tried again
                self._note_lineage()

    def _note_lineage(self) -> None:
        """Before anything of this database lies there: it may be of it. OSError, with which nothing may be put there.

        What an earlier version left there without a list may be of any database: that is noted, too.
        """
        if not self._lineage:
            return
        try:
            known = set((self._received / LINEAGES).read_text(encoding="ascii").split())
        except FileNotFoundError:
            areas = (self._received / area for area in (CHECKPOINTS, LOGS))
            known = {UNKNOWN} if any(area.is_dir() and any(area.iterdir()) for area in areas) else set()
        except ValueError:  # it is damaged
            known = {UNKNOWN}
        if self._lineage not in known:
            text = "".join(f"{lineage}\n" for lineage in sorted({*known, self._lineage}))
            write_atomically(str(self._received / LINEAGES), text.encode(), durable=True)

    # ── names ───────────────────────────────────────────────────────────────────────────────────
    def outgoing(self, message: ToAgent) -> ToAgent:
        """As an agent understands it that shares no folder with the service."""
        match message:
            case Welcome():
                store = self._store if self._is_store_elsewhere else remote(CHECKPOINTS)
                assets = self._asset_store if is_url(self._asset_store) else remote(ASSETS)
                return replace(message, checkpoint_store=store, asset_store=assets, asset_staging=remote(STAGING))
            case Launch(spec=spec):
                return replace(message, spec=replace(spec, checkpoints=tuple(map(self._named, spec.checkpoints))))
            case CheckpointsFound():
                return replace(message, checkpoints=tuple(map(self._named, message.checkpoints)))
            case _:
                return message

    def _named(self, reference: CheckpointRef) -> CheckpointRef:
        path = reference.path
        if path is None or is_url(path):
            return reference
        path = place_now(path, self._home)
        for area, root in self._roots.items():
            if path.startswith(f"{root}/"):
                return replace(reference, path=remote(area, path.removeprefix(f"{root}/")))
        return reference

    def incoming(self, location: str, key: AttemptKey, nonce: str, *, is_joined: bool) -> str | None:
        """Where a checkpoint of an attempt lies, of which its agent says where it has put it.

        None where that is no place of this attempt: who told another's would have it removed with its own, and a folder
        of all of an experiment's.
        """
        root = self._store
        if is_joined and not self._is_store_elsewhere:
            root = remote(CHECKPOINTS)
        if not root:  # an agent that shares the home keeps it there, by its digest; nothing else is named so
            return location if _DIGEST.fullmatch(location.rpartition("/")[2]) and not is_url(location) else None
        prefix = f"{root.rstrip('/')}/{key.experiment_id}/{key.number}/{key.attempt}-{nonce}/"
        name = location.removeprefix(prefix)
        if not location.startswith(prefix) or not _NAME.fullmatch(name) or _fault(prefix.removeprefix(root).strip("/")):
            return None
        if root != remote(CHECKPOINTS):
            return location
        return str(self._roots[CHECKPOINTS] / location.removeprefix(f"{root}/"))

    def remove(self, location: str) -> None:
        """A checkpoint that an agent without a folder in common has put here. Harmless for everything else."""
        root = self._received / CHECKPOINTS
        if location.startswith(f"{root}/") and ".." not in location.split("/"):
            path = Path(location)
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def remove_experiment(self, experiment_id: str) -> None:
        for area in (CHECKPOINTS, LOGS):
            shutil.rmtree(self._received / area / experiment_id, ignore_errors=True)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────
    def readable(self, agent_id: str, area: str, path: str) -> Path:
        """The file, or a folder of files. NotFoundError; NotAllowedError where it is none of the agent's trials'."""
        self._require_plain(path)
        match area:
            case "assets" if not is_url(self._asset_store) and path.startswith("files/"):
                found = Path(self._asset_store) / path  # who knows the digest of a file was given it
            case "checkpoints":
                self._require_experiment(agent_id, path.split("/", 1)[0])
                found = self._roots[CHECKPOINTS] / path
            case "own" if _DIGEST.fullmatch(path.split("/", 1)[0]):  # likewise
                found = self._roots[OWN] / path
            case "secrets":
                self._require_secret(agent_id, path)
                found = self._home / SECRETS / path
            case _:
                raise NotFoundError("file", f"{area}/{path}")
        if not found.exists():
            raise NotFoundError("file", f"{area}/{path}")
        return found

    def log_of(self, attempt: Attempt, stream: str) -> Path | None:
        """What was collected of it, if anything was."""
        if file_of(stream) is None:
            return None
        folder = self._logs_of(attempt.key, attempt.nonce)
        ends = (path for path in folder.glob(f"{stream}@*") if stream_from(path.name)[0] == stream)
        return next((path for path in (folder / stream, *ends) if path.is_file()), None)

    def _logs_of(self, key: AttemptKey, nonce: str) -> Path:
        return self._received / LOGS / key.experiment_id / str(key.number) / f"{key.attempt}-{nonce}"

    # ── writing ─────────────────────────────────────────────────────────────────────────────────
    def keep_logs(self, agent_id: str, key: AttemptKey, nonce: str, logs: Mapping[str, bytes]) -> None:
        """What an attempt wrote, as it came with its end; durable, but where it is nothing. OSError.

        What is no attempt of this agent leaves nothing. Repeating it is harmless.
        """
        its = (a for a in self._queries.attempts(key.experiment_id, key.number) if a.key == key)
        if not any(attempt.is_held_by(agent_id, nonce) for attempt in its):
            return
        self._received.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._note_lineage()
        folder = self._logs_of(key, nonce)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for stream, data in logs.items():
            path = folder / stream
            if not data:
                path.touch(mode=0o400)
            elif not _holds(path, data):
                write_atomically(str(path), data, durable=True, access=0o400)

    def upload(self, agent_id: str, area: str, path: str, *, size: int, digest: str) -> Upload:
        """What may be sent: of an attempt that runs on this agent. InputError, NotAllowedError."""
        self._require_plain(path)
        if not _DIGEST.fullmatch(digest) or size < 0:
            raise InputError([Fault(pointer="", message="an upload says its size and its SHA-256 in 64 hex digits")])
        match area:
            case "staging" if is_file_digest(path):
                target, limit = self._staging / path, OUTPUT_BYTES_LIMIT
                if not self._queries.live_attempts_of(agent_id):
                    raise NotAllowedError(f"agent {agent_id!r} runs no trial now, whose output that could be")
            case "checkpoints":
                self._require_attempt(agent_id, path)
                target, limit = self._roots[CHECKPOINTS] / path, CHECKPOINT_BYTES_LIMIT
            case "logs" if _is_sent(stream_from(path.rsplit("/", 1)[-1])[0]):
                self._require_attempt(agent_id, path, may_have_ended=True)  # there was no room for them before
                target, limit = self._received / LOGS / path, LOG_BYTES_LIMIT
            case _:
                raise NotFoundError("place for a file", f"{area}/{path}")
        if size > limit:
            raise InputError([Fault(pointer="", message=f"{size} bytes; {area} takes {limit} at most")])
        return Upload(target=target, size=size, digest=digest)

    def offset(self, upload: Upload) -> int:
        """How many of its bytes are here: all of them only where it is whole and in its place."""
        with suppress(OSError):
            if self._is_in_place(upload):
                return upload.size
        with suppress(OSError):
            here = self._part(upload).stat().st_size
            # All, and not in its place: with its last piece, once more, that is tried again.
            return here if here < upload.size else max(0, upload.size - PIECE_BYTES)
        return 0

    def _is_in_place(self, upload: Upload) -> bool:
        """Reads all of it, and what is damaged once: it is asked for with every piece. OSError."""
        status = upload.target.stat()
        seen = _Seen(upload.digest, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        if status.st_size != upload.size or self._damaged.get(upload.target) == seen:
            return False
        if _sha256(upload.target) == upload.digest:
            return True
        with self._writing:
            self._damaged.pop(upload.target, None)
            self._damaged[upload.target] = seen
            while len(self._damaged) > DAMAGED_KNOWN:
                del self._damaged[next(iter(self._damaged))]
        return False

    def put(self, upload: Upload, offset: int, piece: bytes) -> int:
        """Add a piece where it goes on; how many bytes are here then: where to go on. Whole: it is durable."""
        if len(piece) > PIECE_BYTES:
            raise InputError([Fault(pointer="", message=f"a piece has {PIECE_BYTES} bytes at most")])
        with self._alone(upload):
            here = self.offset(upload)
            if here != offset or offset + len(piece) > upload.size or (here == upload.size and upload.target.exists()):
                return here
            part = self._part(upload)
            part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if offset + len(piece) == upload.size:
                self._note_lineage()
            with part.open("ab") as file:
                file.truncate(offset)
                file.write(piece)
                if offset + len(piece) == upload.size:
                    file.flush()
                    os.fsync(file.fileno())
            if offset + len(piece) == upload.size:
                self._finish(upload, part)
            elif not offset:
                self.drop_old_parts(now=part.stat().st_mtime)  # by the clock that their times are of
            return offset + len(piece)

    def _finish(self, upload: Upload, part: Path) -> None:
        # A file of an asset is named by its digest, which differs from that of its bytes where it is a long one.
        is_misnamed = upload.target.parent == self._staging and _asset_digest(part) != upload.target.name
        if is_misnamed or _sha256(part) != upload.digest:
            part.unlink()
            raise InputError(
                [Fault(pointer="", message="the bytes have another digest: they were damaged; send again")]
            )
        part.chmod(0o400)
        upload.target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.move(part, upload.target)
        _sync(upload.target)

    def drop_old_parts(self, *, now: float) -> None:
        """Those of uploads that nobody went on with for a day."""
        with suppress(OSError):
            for part in (self._received / PARTS).iterdir():
                with suppress(FileNotFoundError):  # it became whole meanwhile
                    if now - part.stat().st_mtime > PART_KEPT_S:
                        part.unlink()

    @contextmanager
    def _alone(self, upload: Upload) -> Iterator[None]:
        """Nobody else writes to the same part meanwhile; who comes second waits for nothing and starts over."""
        with self._writing:
            if upload.digest in self._open:
                raise UnavailableError("the same bytes are being sent by somebody else; try again")
            self._open.add(upload.digest)
        try:
            yield
        finally:
            with self._writing:
                self._open.discard(upload.digest)

    def _part(self, upload: Upload) -> Path:
        return self._received / PARTS / f"{upload.digest}-{upload.size}"

    # ── whose ───────────────────────────────────────────────────────────────────────────────────
    def _require_plain(self, path: str) -> None:
        if (fault := _fault(path)) is not None:
            raise InputError([Fault(pointer="", message=f"{path!r:.200}: {fault}")])

    def _require_experiment(self, agent_id: str, experiment_id: str) -> None:
        if not any(one.key.experiment_id == experiment_id for one in self._queries.live_attempts_of(agent_id)):
            raise NotAllowedError(f"agent {agent_id!r} runs no trial of experiment {experiment_id!r:.100} now")

    def _require_attempt(self, agent_id: str, path: str, *, may_have_ended: bool = False) -> None:
        """``path`` begins EXPERIMENT/NUMBER/ATTEMPT-NONCE/, and that attempt, or its part of that nonce, runs on the
        agent, or did where it ``may_have_ended``."""
        experiment_id, number, folder = [*path.split("/"), "", "", ""][:3]
        if (named := _FOLDER.fullmatch(folder)) is not None:

            def is_it(attempt: Attempt) -> bool:
                key = attempt.key
                is_named = (key.experiment_id, str(key.number), str(key.attempt)) == (experiment_id, number, named[1])
                return is_named and attempt.is_held_by(agent_id, named[2])

            if any(map(is_it, self._queries.live_attempts_of(agent_id))):
                return
            is_number = number.isascii() and number.isdecimal() and len(number) <= NUMBER_DIGITS
            if may_have_ended and is_number and any(map(is_it, self._queries.attempts(experiment_id, int(number)))):
                return
        raise NotAllowedError(f"agent {agent_id!r} runs no attempt {path!r:.200}")

    def _require_secret(self, agent_id: str, name: str) -> None:
        if re.fullmatch(NAME_OF_SECRET, name):
            for experiment_id in {attempt.key.experiment_id for attempt in self._queries.live_attempts_of(agent_id)}:
                experiment = self._queries.experiment(experiment_id)
                if experiment is not None and name in experiment.spec.trial.secrets.values():
                    return
        raise NotAllowedError(f"agent {agent_id!r} runs no trial with this secret")


def lineages_of(home: Path) -> set[str]:
    """Of the databases whose experiments' files nodes have sent to that home; nothing where that is not known."""
    try:
        return set((home / RECEIVED / LINEAGES).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return set()


def logs_in(told: Mapping[str, str]) -> dict[str, bytes]:
    """By stream, as the end of an attempt has brought them. ProtocolError."""
    try:
        found = {stream: base64.b64decode(text, validate=True) for stream, text in told.items()}
    except (binascii.Error, ValueError) as exc:
        raise ProtocolError(f"the logs of an exit are in base64: {exc}") from exc
    if len(found) > len((*STREAMS, RESOURCES)) + RANK_STREAMS_INLINE:
        raise ProtocolError(f"the logs of an exit are {len(found)} streams; of ranks {RANK_STREAMS_INLINE} at most")
    for stream, data in found.items():
        if file_of(stream) is None or len(data) > LOG_INLINE_BYTES:
            known = f"{LOG_INLINE_BYTES} of {', '.join(STREAMS)}, of ranks and of {RESOURCES}"
            raise ProtocolError(f"{len(data)} bytes of {stream!r:.100}: {known}")
    return found


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def _fault(path: str) -> str | None:
    return "has no name" if not path else path_fault(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _asset_digest(path: Path) -> str:
    with path.open("rb") as file:
        pieces = [hashlib.sha256(p).hexdigest() for p in iter(lambda: file.read(ASSET_PIECE_BYTES), b"")]
    return digest_of_pieces(tuple(pieces) or (hashlib.sha256(b"").hexdigest(),))


def _sync(path: Path) -> None:
    for place, flags in ((path, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        descriptor = os.open(place, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def part_of_log(path: Path, *, offset: int, limit: int) -> LogChunk:
    """As an agent answers: a negative offset counts from the end. The name of the file says where it begins."""
    _, first = stream_from(path.name)
    with path.open("rb") as file:
        size = first + os.fstat(file.fileno()).st_size
        begin = min(max(size + offset if offset < 0 else offset, first), size)
        file.seek(begin - first)
        data = whole_characters(file.read(max(0, limit)), limit)
    text, end = data.decode(errors="replace"), begin + len(data)
    return LogChunk(request_id="", data=text, begin=begin, end=end, size=size)


def _is_sent(stream: str) -> bool:
    return stream != RESOURCES and file_of(stream) is not None
