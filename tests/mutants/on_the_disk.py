"""What stands on the disk, and in which order: the calls without which a power loss leaves less than was promised."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

POWER = "tests/unit/trials/test_power_loss.py"
NODE = "tests/unit/trials/test_power_loss_of_a_node.py"
SHARDS = "tests/unit/trials/test_sharded_alone.py"
FILES = "tests/unit/service/test_power_loss_of_files.py"

ON_THE_DISK: tuple[Mutant, ...] = (
    mutant(
        "trials/checkpoints/verified_files.py",
        '        put_in_place(str(draft), f"{folder}/{name}")',
        '        draft.replace(f"{folder}/{name}")',
        POWER,
    ),
    mutant(
        "trials/checkpoints/verified_files.py", "data, durable=True, access=BY_UMASK)", "data, access=BY_UMASK)", POWER
    ),
    mutant("trials/checkpoints/saving.py", "            self._steps.sync_reports()\n", "", POWER),
    mutant("trials/reports/spool_writer.py", "        os.fsync(self._descriptor)\n", "        pass\n", POWER),
    mutant(
        "trials/files.py",
        "        if durable:\n            os.fsync(descriptor)",
        "        if not durable:\n            pass",
        POWER,
    ),
    mutant("trials/files.py", "    _sync(draft, os.O_RDONLY)\n", "", POWER),
    mutant("trials/files.py", '            _sync(f"{folder}/{name}", os.O_RDONLY)\n', "            pass\n", POWER),
    mutant(
        "trials/files.py",
        "    os.replace(draft, path)\n    sync_folder(os.path.dirname(path))",
        "    os.replace(draft, path)",
        POWER,
    ),
    mutant(
        "trials/files.py",
        "        raise\n    if durable:\n        sync_folder(os.path.dirname(path))",
        "        raise",
        POWER,
    ),
    mutant(
        "trials/files.py",
        "        _remove(draft)\n    if durable:\n        sync_folder(os.path.dirname(path))",
        "        _remove(draft)",
        POWER,
    ),
    mutant("trials/files.py", "    _sync(path, os.O_RDONLY)\n", "    pass\n", POWER),
    mutant(
        "trials/files.py",
        "        os.link(draft, path)",
        "        os.replace(draft, path)",
        "tests/unit/trials/test_agent_exits.py",
    ),
    mutant("trials/agent/supervision/exits.py", "to_json(record), durable=True)", "to_json(record))", POWER),
    mutant(
        "trials/stores.py",
        "        put_in_place(str(draft), str(target))",
        "        draft.replace(target)",
        POWER,
    ),
    mutant(
        "trials/learner/weights.py",
        "        replace_file(self._folder / name, data)",
        "        (self._folder / name).write_bytes(data)",
        POWER,
    ),
    mutant("tuner_service/service/access.py", ".encode(), durable=True)", ".encode())", POWER),
    mutant(
        "tuner_service/storage/engine.py",
        "    put_in_place(str(unfinished), str(path))",
        "    unfinished.rename(path)",
        POWER,
    ),
    mutant(
        "tuner_service/storage/sqlite_file.py",
        "    put_in_place(str(unfinished), str(copy))",
        "    unfinished.replace(copy)",
        POWER,
    ),
    mutant("tuner_service/cli/verbs/secret.py", "value.encode(), durable=True)", "value.encode())", POWER),
    mutant(
        "tuner_service/cli/verbs/export.py",
        "        put_in_place(str(draft), str(target))",
        "        draft.replace(target)",
        POWER,
    ),
    mutant(
        "tuner_service/storage/engine.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = OFF",
        "tests/unit/storage/test_opening.py",
    ),
    # ── of a node, a learner and their stores ────────────────────────────────────────────────────
    mutant(
        "trials/agent/attempts.py",
        "if not create_once(claim, own, durable=True):",
        "if not create_once(claim, own):",
        NODE,
    ),
    mutant(
        "trials/agent/attempts.py",
        "write_atomically(claim, own, durable=True)  #",
        "write_atomically(claim, own)  #",
        NODE,
    ),
    mutant("trials/agent/forks/ordered.py", "tail=text), durable=True)", "tail=text), durable=False)", NODE),
    mutant(
        "trials/agent/home.py",
        ".encode(), durable=True)\n        return plain_name",
        ".encode())\n        return plain_name",
        NODE,
    ),
    mutant(
        "trials/agent/home.py", "secrets.token_hex(8).encode(), durable=True)", "secrets.token_hex(8).encode())", NODE
    ),
    mutant("trials/agent/node_facts.py", 'b"", durable=True)', 'b"")', NODE),
    mutant("trials/agent/node_facts.py", "                sync_folder(str(self._drained.parent))\n", "", NODE),
    mutant("trials/agent/patience.py", ".encode(), durable=True)", ".encode())", NODE),
    mutant(
        "trials/agent/moving/references.py",
        "write_atomically(str(place), found.encode(), durable=True)",
        "write_atomically(str(place), found.encode())",
        NODE,
    ),
    mutant(
        "trials/stores.py", "write_atomically(location, data, durable=True)", "write_atomically(location, data)", NODE
    ),
    mutant("trials/stores.py", "        os.fsync(writing.fileno())  #", "        pass  #", NODE),
    mutant(
        "trials/learner/coordination/journal.py",
        "            write_all(self._file, data)\n            os.fdatasync(self._file)\n",
        "            write_all(self._file, data)\n",
        NODE,
    ),
    mutant(
        "trials/learner/coordination/journal.py",
        "        os.fdatasync(self._file)  # whoever",
        "        pass  # whoever",
        NODE,
    ),
    mutant(
        "trials/learner/coordination/journal.py",
        "write_atomically(str(self.path), data, durable=True)",
        "write_atomically(str(self.path), data)",
        NODE,
    ),
    mutant(
        "trials/learner/coordination/port.py",
        "to_json(self._task.record()), durable=True)",
        "to_json(self._task.record()))",
        NODE,
    ),
    # ── of the service, its assets and what people fetch ─────────────────────────────────────────
    mutant("tuner_service/service/assets/asset_store.py", "        sync_filesystem(str(self.staging))\n", "", FILES),
    mutant(
        "tuner_service/service/assets/asset_store.py",
        "            path.replace(self.folder / file_name(path.name))\n        sync_filesystem(str(self.folder))",
        "            path.replace(self.folder / file_name(path.name))",
        FILES,
    ),
    mutant(
        "tuner_service/service/assets/asset_store.py",
        "secrets.token_hex(16).encode(), durable=True)",
        "secrets.token_hex(16).encode())",
        FILES,
    ),
    mutant("tuner_service/assets/fetching.py", "        sync_filesystem(str(partial))\n", "", FILES),
    mutant("tuner_service/assets/fetching.py", "    sync_folder(str(target.parent))\n", "", FILES),
    mutant("tuner_service/service/node_files.py", "text.encode(), durable=True)", "text.encode())", FILES),
    mutant("tuner_service/service/node_files.py", "data, durable=True, access=0o400)", "data, access=0o400)", FILES),
    mutant("tuner_service/service/node_files.py", "                    os.fsync(file.fileno())\n", "", FILES),
    mutant("tuner_service/service/node_files.py", "        _sync(upload.target)\n", "", FILES),
    mutant("tuner_service/exports/archive.py", "        os.fsync(stream.fileno())\n", "", FILES),
    mutant(
        "tuner_service/cli/verbs/token.py",
        "        put_in_place(str(draft), str(file))\n",
        "        draft.replace(file)\n",
        FILES,
    ),
    # ── of checkpoints of several processes, and of code ─────────────────────────────────────────
    mutant(
        "trials/checkpoints/shards_apart.py",
        "                os.fsync(file.fileno())\n",
        "                pass\n",
        "tests/unit/trials/test_shards_of_nodes.py",
    ),
    mutant(
        "trials/checkpoints/shards.py",
        "        put_in_place(str(draft), str(target))",
        "        draft.replace(target)",
        SHARDS,
    ),
    mutant(
        "tuner_service/workers/pool.py",
        "                sync_tree(str(draft))\n",
        "",
        "tests/unit/workers/test_worker_pool.py",
    ),
    mutant(
        "tuner_service/workers/pool.py",
        "        put_in_place(str(draft), str(folder))\n",
        "        draft.replace(folder)\n",
        "tests/unit/workers/test_worker_pool.py",
    ),
    mutant(
        "trials/checkpoints/shards.py",
        "    replace_file(draft / MANIFEST, data)",
        "    (draft / MANIFEST).write_bytes(data)",
        SHARDS,
    ),
    mutant("trials/checkpoints/shards.py", "        sync_folder(str(target.parent))\n", "", SHARDS),
    mutant(
        "trials/checkpoints/stores.py",
        'replace_file(self._folder / FILE_RESTORE, json.dumps({"checkpoints": kept}).encode())',
        '(self._folder / FILE_RESTORE).write_bytes(json.dumps({"checkpoints": kept}).encode())',
        "tests/unit/trials/test_checkpoints.py",
    ),
    mutant(
        "trials/agent/supervision/attempt_life.py",
        '                sync_file(f"{self._folder}/{FILE_EXIT}")\n',
        "                pass\n",
        NODE,
    ),
)
