"""Settings, and where each came from.

Precedence, highest first: command-line flag, environment (``TUNER_*``), the profile, ``./tuner.toml``, the user's
file, the default. Standard library only: the command line reads this before anything else.

``./tuner.toml`` may belong to somebody else's project: it sets only what can neither send a token or data somewhere
nor run anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tuner_service import setting_values
from tuner_service.domain.errors import Fault, InputError
from tuner_service.executor_options import ExecutorOptions, parse_executor

PROJECT_FILE = "tuner.toml"
SQLITE_SCHEME = "sqlite:///"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of docs/configuration.md."""

    name: str
    flag: str
    environment: str
    default: str
    meaning: str
    of_project: bool = False  # whether ./tuner.toml may set it: a project that was cloned brings one


SETTINGS = (
    Setting(
        name="home",
        flag="--home",
        environment="TUNER_HOME",
        default="$XDG_DATA_HOME/tuner, or ~/.local/share/tuner",
        meaning="the folder that holds everything of a service: database, tokens, attempts, checkpoints, its address",
    ),
    Setting(
        name="db",
        flag="--db",
        environment="TUNER_DB",
        default="HOME/tuner.db",
        meaning="the database: a file, or a URL",
    ),
    Setting(
        name="host",
        flag="--host",
        environment="TUNER_HOST",
        default="127.0.0.1",
        meaning="the address that `serve` listens on",
    ),
    Setting(
        name="port",
        flag="--port",
        environment="TUNER_PORT",
        default="0",
        meaning="the port that `serve` listens on; 0 picks a free one, the one of the last time if that is free",
        of_project=True,
    ),
    Setting(
        name="log_level",
        flag="--log-level",
        environment="TUNER_LOG_LEVEL",
        default="info",
        meaning="how much the service writes to its log: debug, info, warning or error",
        of_project=True,
    ),
    Setting(
        name="log_format",
        flag="--log-format",
        environment="TUNER_LOG_FORMAT",
        default="auto",
        meaning="form of the logs of service, agent and what they start: json, text, or auto (text on a terminal)",
        of_project=True,
    ),
    Setting(
        name="allowed_hosts",
        flag="--allowed-hosts",
        environment="TUNER_ALLOWED_HOSTS",
        default="",
        meaning="names by which clients call the service, beside localhost, addresses, `host` and the machine's own; "
        "comma-separated",
    ),
    Setting(
        name="allowed_origins",
        flag="--allowed-origins",
        environment="TUNER_ALLOWED_ORIGINS",
        default="",
        meaning="web origins, beside the service's own, whose pages may call it; comma-separated",
    ),
    Setting(
        name="checkpoint_store",
        flag="--checkpoint-store",
        environment="TUNER_CHECKPOINT_STORE",
        default="HOME/checkpoints of each node",
        meaning="where checkpoints go that are too large for the database: a folder, or a URL that fsspec opens",
    ),
    Setting(
        name="asset_store",
        flag="--asset-store",
        environment="TUNER_ASSET_STORE",
        default="HOME/assets",
        meaning="where the files of assets lie: a folder, or a URL that fsspec opens",
    ),
    Setting(
        name="asset_cache",
        flag="--asset-cache",
        environment="TUNER_ASSET_CACHE",
        default="64GiB",
        meaning="the most that a node keeps of assets beside those that its trials use",
    ),
    Setting(
        name="executor",
        flag="--executor",
        environment="TUNER_EXECUTOR",
        default="local",
        meaning="who provides agents: local, ray, local,ray, or a table (docs/ray.md)",
    ),
    Setting(
        name="service_lost_timeout",
        flag="--service-lost-timeout",
        environment="TUNER_SERVICE_LOST_TIMEOUT",
        default="never",
        meaning="how long trials of an agent without a connection run on: then it ends them, and they go on elsewhere",
    ),
    Setting(
        name="worker_memory",
        flag="--worker-memory",
        environment="TUNER_WORKER_MEMORY",
        default="4GiB",
        meaning="the most that the algorithms of one experiment, and what they start, hold in memory; 0: no limit",
    ),
    Setting(
        name="url",
        flag="--url",
        environment="TUNER_URL",
        default="",
        meaning="a service elsewhere; commands then go there instead of to the one of the home folder",
    ),
    Setting(
        name="token",
        flag="",
        environment="TUNER_TOKEN",
        default="HOME/token",
        meaning="the token commands are sent with; never a flag, because other users see command lines",
    ),
    Setting(
        name="ca",
        flag="--ca",
        environment="TUNER_CA",
        default="those that the system trusts",
        meaning="the certificates (PEM) by which commands know a service at an https:// url",
    ),
    Setting(
        name="tls_cert",
        flag="--tls-cert",
        environment="TUNER_TLS_CERT",
        default="",
        meaning="the certificate (PEM, with those between it and its CA) that `serve` shows; it then speaks https",
    ),
    Setting(
        name="tls_key",
        flag="--tls-key",
        environment="TUNER_TLS_KEY",
        default="",
        meaning="the private key (PEM, not encrypted) of that certificate",
    ),
    Setting(
        name="insecure_network",
        flag="--insecure-network",
        environment="TUNER_INSECURE_NETWORK",
        default="false",
        meaning="let `serve` speak http beyond this machine, where others read tokens and all that is said",
    ),
    Setting(
        name="profile",
        flag="--profile",
        environment="TUNER_PROFILE",
        default="",
        meaning="a table [profiles.NAME] of the files, used before their other settings",
        of_project=True,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting, resolved. ``origins`` says of each where its value came from."""

    home: Path
    db: str
    host: str = "127.0.0.1"
    port: int = 0
    log_level: str = "info"
    log_format: str = "auto"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    checkpoint_store: str = ""  # a path or a URL; empty: HOME/checkpoints, on each node its own
    asset_store: str = ""  # a path or a URL; empty: HOME/assets
    asset_cache: int = 64 << 30  # bytes
    executor: ExecutorOptions = field(default_factory=ExecutorOptions)
    service_lost_timeout: float | None = None  # seconds
    worker_memory: int = 4 << 30  # bytes; 0: without a limit
    url: str = ""
    token: str = field(default="", repr=False)
    ca: str = ""  # a path; empty: what the system trusts
    tls_cert: str = ""
    tls_key: str = ""
    insecure_network: bool = False
    profile: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def token_is_for_url(self) -> bool:
        """Whether somebody meant the token for the URL: it is the environment's, or stands where the URL stands."""
        return bool(self.token) and self.origins["token"] in {"environment", self.origins["url"]}

    @property
    def token_file(self) -> Path:
        return self.home / "token"

    @property
    def read_only_token_file(self) -> Path:
        return self.home / "token-read-only"

    @property
    def agent_token_file(self) -> Path:
        return self.home / "agent" / "token"

    @property
    def port_file(self) -> Path:
        """The port that was picked the last time, where none was asked for."""
        return self.home / "port"

    @property
    def service_file(self) -> Path:
        """{"url", "pid", "token_file", "started_at", "version"} while a service listens."""
        return self.home / "service.json"

    @property
    def log_file(self) -> Path:
        return self.home / "service.log"

    @property
    def attempts(self) -> Path:
        return self.home / "attempts"

    @property
    def secrets(self) -> Path:
        return self.home / "secrets"

    @property
    def checkpoints(self) -> Path:
        return self.home / "checkpoints"

    @property
    def asset_root(self) -> str:
        """Where the files of assets lie: a path, or a URL."""
        return self.asset_store or str(self.home / "assets")

    @property
    def database_file(self) -> Path | None:
        """The file of an SQLite database; None for another database."""
        return Path(self.db.removeprefix(SQLITE_SCHEME)) if self.db.startswith(SQLITE_SCHEME) else None


def resolve_settings(
    flags: Mapping[str, str | None], *, environment: Mapping[str, str], folder: Path, user_file: Path | None = None
) -> Settings:
    """``flags`` by setting name, None where not given. InputError names every wrong value with where it stands."""
    user_file = user_file or _user_file(environment)
    project_file = folder / PROJECT_FILE
    files = [(str(project_file), _read(project_file)), (str(user_file), _read(user_file))]
    _check_project(*files[0], user_file=user_file)
    profile, profile_origin = _profile(flags, environment, files)
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("flag", {name: value for name, value in flags.items() if value is not None}),
        ("environment", {s.name: environment[s.environment] for s in SETTINGS if environment.get(s.environment)}),
        *_profile_layers(profile, profile_origin, files),
        *files,
    ]
    raw: dict[str, tuple[Any, str]] = {}
    for origin, values in layers:
        for name, value in values.items():
            raw.setdefault(name, (value, origin))
    return _check(raw, environment=environment, folder=folder, profile=(profile, profile_origin))


def _check_project(origin: str, values: Mapping[str, Any], *, user_file: Path) -> None:
    """InputError for what a project's file may not set; what no file may set is found later."""
    profiles = values.get("profiles", {})
    tables = [values, *(profiles.values() if isinstance(profiles, dict) else ())]
    set_there = {name for table in tables if isinstance(table, dict) for name in table}
    names = [s.name for s in SETTINGS if s.name in set_there and not s.of_project]
    message = (
        f"{origin}: the file of a project may not set it, because whoever wrote the project would decide where your "
        f"tokens and data go and what runs as you; use the flag, the environment or {user_file}"
    )
    if names:
        raise InputError([Fault(pointer=f"/{name}", message=message) for name in names])


def _profile(
    flags: Mapping[str, str | None], environment: Mapping[str, str], files: list[tuple[str, dict[str, Any]]]
) -> tuple[str, str]:
    if flags.get("profile"):
        return str(flags["profile"]), "flag"
    if environment.get("TUNER_PROFILE"):
        return environment["TUNER_PROFILE"], "environment"
    for origin, values in files:
        if values.get("profile"):
            return str(values["profile"]), origin
    return "", "default"


def _profile_layers(
    profile: str, origin: str, files: list[tuple[str, dict[str, Any]]]
) -> list[tuple[str, Mapping[str, Any]]]:
    known: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for file, values in files:
        tables = values.pop("profiles", {})
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise InputError([Fault(pointer="/profiles", message=f"{file}: profiles are tables, [profiles.NAME]")])
        for name, table in tables.items():
            known.setdefault(name, []).append((f"{file} [profiles.{name}]", table))
    if profile and profile not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InputError([Fault(pointer="/profile", message=f"{origin}: no profile {profile!r}; known: {names}")])
    return known.get(profile, [])


def _check(
    raw: Mapping[str, tuple[Any, str]], *, environment: Mapping[str, str], folder: Path, profile: tuple[str, str]
) -> Settings:
    parsers: dict[str, Callable[[Any], Any]] = {
        "home": lambda value: (folder / Path(setting_values.text_of(value)).expanduser()).resolve(),
        "db": lambda value: database_url(setting_values.text_of(value), folder=folder),
        "host": setting_values.text_of,
        "port": setting_values.port_of,
        "log_level": setting_values.log_level_of,
        "log_format": setting_values.log_format_of,
        "allowed_hosts": setting_values.names_of,
        "allowed_origins": setting_values.names_of,
        "checkpoint_store": lambda value: setting_values.store_location(setting_values.text_of(value), folder=folder),
        "asset_store": lambda value: setting_values.store_location(setting_values.text_of(value), folder=folder),
        "asset_cache": lambda value: setting_values.size_of(value, name="asset_cache", least=0),
        "executor": parse_executor,
        "service_lost_timeout": setting_values.service_lost_of,
        "worker_memory": setting_values.worker_memory_of,
        "url": setting_values.url_of,
        "token": setting_values.token_of,
        "ca": lambda value: setting_values.file_of(value, folder=folder),
        "tls_cert": lambda value: setting_values.file_of(value, folder=folder),
        "tls_key": lambda value: setting_values.file_of(value, folder=folder),
        "insecure_network": setting_values.is_yes,
        "profile": setting_values.text_of,
    }
    faults: list[Fault] = []
    found: dict[str, Any] = {}
    origins = {f.name: "default" for f in fields(Settings) if f.name != "origins"}
    for name, (value, origin) in raw.items():
        if name not in parsers:
            known = ", ".join(sorted(parsers))
            faults.append(Fault(pointer=f"/{name}", message=f"{origin}: no setting {name!r}; known: {known}"))
            continue
        try:
            found[name] = parsers[name](value)
            origins[name] = origin
        except (ValueError, RuntimeError) as exc:  # the second where a ~ stands for no user
            faults.append(Fault(pointer=f"/{name}", message=f"{origin}: {exc}"))
    if faults:
        raise InputError(faults)
    found["profile"], origins["profile"] = profile
    if "home" not in found:
        found["home"] = default_home(environment)
    home = found["home"]
    if found.get("checkpoint_store") == str(home / "checkpoints"):
        del found["checkpoint_store"]  # the default, whose files have names of their own
    found.setdefault("db", database_url(str(home / "tuner.db"), folder=folder))
    return Settings(origins=origins, **found)


def default_home(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_DATA_HOME")
    if base:
        return Path(base) / "tuner"
    try:
        return Path.home() / ".local" / "share" / "tuner"
    except RuntimeError as exc:
        message = "this user has no home folder; name the service's with --home or TUNER_HOME, or set HOME"
        raise InputError([Fault(pointer="/home", message=message)]) from exc


def database_url(value: str, *, folder: Path) -> str:
    """A URL as it is; a file, also one that a URL names, as the URL of its absolute path without links: whatever is
    looked for beside a database lies beside the file itself."""
    file = value.removeprefix(SQLITE_SCHEME)
    if "://" in file:
        return value
    return f"{SQLITE_SCHEME}{(folder / Path(file).expanduser()).resolve()}"


def _user_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME")
    if base:
        return Path(base) / "tuner" / "config.toml"
    try:
        return Path.home() / ".config" / "tuner" / "config.toml"
    except RuntimeError:
        return Path(os.devnull)  # a user without a home folder, as in a container, has no file there


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    import tomllib

    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors begin a file with the mark
    except (ValueError, RecursionError) as exc:  # also of what Python takes no number or no nesting of
        raise InputError([Fault(pointer="", message=f"{file} is not TOML: {exc}")]) from exc


def package_version() -> str:
    """Of the installed package; of a checkout that is not installed, the one its pyproject.toml names."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tuner-service")
    except PackageNotFoundError:
        project = _read(Path(__file__).resolve().parent.parent / "pyproject.toml").get("project", {})
        return str(project.get("version", "unknown"))
