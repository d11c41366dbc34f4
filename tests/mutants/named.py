"""Lines that exactness stands on, each with what it would be if somebody broke it, and the tests that must see that.

A line that moves or changes is looked up again here: the run says which mutant does not apply any more.
"""

from __future__ import annotations

from dataclasses import dataclass

POWER = "tests/unit/trials/test_power_loss.py"
REPORTS = "tests/unit/dispatcher/test_reports.py"
SPOOL = "tests/unit/trials/test_agent_spool.py"
RECONCILE = "tests/unit/dispatcher/test_reconcile.py"
STORE = "tests/contract/test_store.py"
PARTS = "tests/unit/dispatcher/test_parts.py"
ASKS = "tests/unit/dispatcher/test_asks.py"
TOKENS = "tests/unit/service/test_tokens.py"
TRANSFERRED = "tests/unit/trials/test_transferred_bytes.py"
LEASE = "tests/integration/postgresql/test_one_active_service.py::"


@dataclass(frozen=True, slots=True)
class Mutant:
    """In the file ``path``, ``old`` (which stands there once) becomes ``new``."""

    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def _mutant(path: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(path, old, new, tests)


NAMED: tuple[Mutant, ...] = (
    # ── what is on the disk ─────────────────────────────────────────────────────────────────────
    _mutant(
        "trials/checkpoints/verified_files.py",
        '        put_in_place(str(draft), f"{folder}/{name}")',
        '        draft.replace(f"{folder}/{name}")',
        POWER,
    ),
    _mutant(
        "trials/checkpoints/verified_files.py", "data, durable=True, access=BY_UMASK)", "data, access=BY_UMASK)", POWER
    ),
    _mutant("trials/checkpoints/saving.py", "            self._steps.sync_reports()\n", "", POWER),
    _mutant("trials/reports/spool_writer.py", "        os.fsync(self._descriptor)\n", "        pass\n", POWER),
    _mutant(
        "trials/files.py",
        "        if durable:\n            os.fsync(descriptor)",
        "        if not durable:\n            pass",
        POWER,
    ),
    _mutant("trials/files.py", "    _sync(draft, os.O_RDONLY)\n", "", POWER),
    _mutant("trials/files.py", '            _sync(f"{folder}/{name}", os.O_RDONLY)\n', "            pass\n", POWER),
    _mutant(
        "trials/files.py",
        "    os.replace(draft, path)\n    sync_folder(os.path.dirname(path))",
        "    os.replace(draft, path)",
        POWER,
    ),
    _mutant(
        "trials/files.py",
        "        raise\n    if durable:\n        sync_folder(os.path.dirname(path))",
        "        raise",
        POWER,
    ),
    _mutant(
        "trials/files.py",
        "        _remove(draft)\n    if durable:\n        sync_folder(os.path.dirname(path))",
        "        _remove(draft)",
        POWER,
    ),
    _mutant("trials/files.py", "    _sync(path, os.O_RDONLY)\n", "    pass\n", POWER),
    _mutant(
        "trials/files.py",
        "        os.link(draft, path)",
        "        os.replace(draft, path)",
        "tests/unit/trials/test_agent_exits.py",
    ),
    _mutant("trials/agent/supervision/exits.py", "to_json(record), durable=True)", "to_json(record))", POWER),
    _mutant(
        "trials/stores.py",
        "        put_in_place(str(draft), str(target))",
        "        draft.replace(target)",
        POWER,
    ),
    _mutant(
        "trials/learner/weights.py",
        "        replace_file(self._folder / name, data)",
        "        (self._folder / name).write_bytes(data)",
        POWER,
    ),
    _mutant("tuner_service/service/access.py", ".encode(), durable=True)", ".encode())", POWER),
    _mutant(
        "tuner_service/storage/engine.py",
        "    put_in_place(str(unfinished), str(path))",
        "    unfinished.rename(path)",
        POWER,
    ),
    _mutant(
        "tuner_service/storage/sqlite_file.py",
        "    put_in_place(str(unfinished), str(copy))",
        "    unfinished.replace(copy)",
        POWER,
    ),
    _mutant("tuner_service/cli/verbs/secret.py", "value.encode(), durable=True)", "value.encode())", POWER),
    _mutant(
        "tuner_service/cli/verbs/export.py",
        "        put_in_place(str(draft), str(target))",
        "        draft.replace(target)",
        POWER,
    ),
    _mutant(
        "tuner_service/storage/engine.py",
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = OFF",
        "tests/unit/storage/test_opening.py",
    ),
    # ── what counts once ────────────────────────────────────────────────────────────────────────
    _mutant(
        "tuner_service/dispatcher/agents.py",
        "command.first_sequence > known + 1",
        "command.first_sequence > known + 2",
        REPORTS,
    ),
    _mutant("tuner_service/dispatcher/agents.py", "or last <= known:", "or last < known:", REPORTS),
    _mutant(
        "tuner_service/dispatcher/agents.py",
        "new = command.records[known + 1 - command.first_sequence :]",
        "new = command.records",
        REPORTS,
    ),
    _mutant("tuner_service/dispatcher/agents.py", "if command.last_sequence > known:", "if False:", REPORTS),
    _mutant(
        "tuner_service/dispatcher/agents.py",
        "if not ts.live.parts and ts.live.agent_id == agent_id != EVALUATOR:",
        "if not ts.live.parts:",
        REPORTS,
    ),
    _mutant("tuner_service/dispatcher/reconcile.py", "or seen.lineage != lineage:", "or False:", RECONCILE),
    _mutant(
        "tuner_service/dispatcher/reconcile.py",
        "AttemptStatus.STARTING and not attempt.acknowledged",
        "AttemptStatus.STARTING",
        RECONCILE,
    ),
    _mutant("trials/agent/spool.py", "        if sequence < self.sequence:\n", "        if False:\n", SPOOL),
    _mutant(
        "trials/agent/spool.py",
        "self._move(batch.first_sequence + count - 1, batch",
        "self._move(batch.first_sequence + count, batch",
        SPOOL,
    ),
    _mutant("trials/agent/spool.py", "batch.ends[count - 1])", "batch.ends[-1])", SPOOL),
    _mutant(
        "trials/agent/attempts.py",
        "type(found) is int and found != FILES_FORMAT",
        "False",
        "tests/unit/trials/test_agent_formats.py",
    ),
    _mutant(
        "tuner_service/api/agents.py",
        "greeting.version != PROTOCOL_VERSION",
        "False",
        "tests/unit/api/test_agent_channel.py",
    ),
    _mutant(
        "trials/wire/lines.py",
        " or (step is None) is not final",
        "",
        "tests/unit/service/test_report_lines.py",
    ),
    # ── what the algorithms know ────────────────────────────────────────────────────────────────
    _mutant(
        "tuner_service/dispatcher/algorithms.py",
        "        _move_cursor(step, xs, event.queue, answer.line)\n",
        "",
        "tests/unit/dispatcher/test_algorithm_worker.py",
    ),
    _mutant(
        "tuner_service/dispatcher/algorithms.py",
        "event.line <= _cursor(xs, event.queue)",
        "True",
        "tests/unit/dispatcher/test_algorithm_worker.py",
        "tests/unit/dispatcher/test_recovery.py",
    ),
    _mutant(
        "tuner_service/dispatcher/endings.py",
        "return trial.reports_line <= cursor",
        "return True",
        "tests/unit/dispatcher/test_multi_phase.py",
    ),
    _mutant(
        "tuner_service/storage/sql_store.py",
        "        _put(connection, tables.queue_cursors, [row for e in experiments for row in mapping.cursors_in(e)])\n",
        "",
        STORE,
    ),
    # ── what is believed ────────────────────────────────────────────────────────────────────────
    _mutant(
        "trials/checkpoints/verified_files.py",
        "return None if digest_of(path) == digest else path.name",
        "return None",
        "tests/unit/trials/test_checkpoints.py",
    ),
    _mutant(
        "trials/data/loader_state.py",
        'if state.get("dataset") != dataset:',
        "if False:",
        "tests/unit/trials/test_data_loader_state.py",
    ),
    _mutant(
        "trials/data/loader_state.py",
        'if state.get("order") != order:',
        "if False:",
        "tests/unit/trials/test_data_loader_state.py",
    ),
    _mutant(
        "trials/data/loader.py",
        "        self._delivered = loaded.end\n",
        "        self._delivered = loaded.end - 1\n",
        "tests/integration/trials/test_data_solo_equality.py",
    ),
    _mutant(
        "trials/data/core/in_order_pipeline.py",
        "        self._next_delivery += 1\n        if batch.death",
        "        self._next_delivery += 2\n        if batch.death",
        "tests/unit/trials/test_data_in_order_pipeline.py",
    ),
    _mutant(
        "trials/data/core/in_order_pipeline.py",
        "                entry.abandoned = True\n                    for part",
        "                entry.abandoned = False\n                    for part",
        "tests/unit/trials/test_data_in_order_pipeline.py",
    ),
    # ── bytes that came from elsewhere ──────────────────────────────────────────────────────────
    _mutant("trials/agent/moving/blobs.py", " or self._hash.hexdigest() != sent.digest:", ":", TRANSFERRED),
    _mutant(
        "trials/agent/moving/restoring.py",
        "        return digest_of(path) == digest\n",
        "        return True\n",
        TRANSFERRED,
    ),
    _mutant(
        "trials/agent/moving/offers.py",
        " and hashlib.sha256(data).hexdigest() == record.digest",
        "",
        TRANSFERRED,
    ),
    _mutant(
        "trials/agent/moving/node_cache.py",
        "if found == file.digest:",
        "if found:",
        "tests/unit/trials/test_node_cache.py",
    ),
    _mutant(
        "tuner_service/exports/archive.py",
        '(found.rows, found.digest) != (order["rows"], order["digest"]):',
        'found.rows != order["rows"]:',
        "tests/unit/exports/test_damaged_archives.py",
    ),
    _mutant(
        "tuner_service/dispatcher/archiving.py",
        "    _require_ended(xs, command.phase)\n",
        "",
        "tests/unit/dispatcher/test_archiving.py",
    ),
    _mutant(
        "tuner_service/dispatcher/archiving.py",
        "if isinstance(item, MetricsReported)",
        "if False",
        "tests/unit/dispatcher/test_archiving.py",
    ),
    _mutant(
        "tuner_service/dispatcher/retention.py",
        "[c for c in kept if c.digest == record.digest]",
        "list(kept)",
        "tests/unit/dispatcher/test_retention.py",
    ),
    # ── trials of several nodes ─────────────────────────────────────────────────────────────────
    _mutant(
        "tuner_service/dispatcher/orders.py",
        "    if attempt.is_preparing:\n",
        "    if part.state is PartState.PREPARING:\n",
        PARTS,
    ),
    _mutant("tuner_service/dispatcher/orders.py", " or attempt.has_failed_part:", ":", PARTS),
    _mutant(
        "tuner_service/dispatcher/parts.py",
        "elif all(one.state is PartState.ENDED for one in ts.live.parts):",
        "elif any(one.state is PartState.ENDED for one in ts.live.parts):",
        PARTS,
    ),
    _mutant(
        "tuner_service/dispatcher/parts.py",
        "    if ts.live.is_preparing:\n        _give_back(ts, f",
        "    if False:\n        _give_back(ts, f",
        PARTS,
    ),
    _mutant("tuner_service/dispatcher/parts.py", "[*outside, *unasked, *asked]", "[*unasked, *asked]", PARTS),
    _mutant(
        "tuner_service/dispatcher/parts.py",
        "return attempt.parts[node].acknowledged if node else attempt.acknowledged",
        "return attempt.acknowledged",
        PARTS,
    ),
    # ── who may ─────────────────────────────────────────────────────────────────────────────────
    _mutant(
        "tuner_service/service/tokens.py",
        "if token is None or (token.expires_at is not None and self.clock.now() >= token.expires_at):",
        "if token is None:",
        TOKENS,
    ),
    _mutant(
        "tuner_service/service/tokens.py",
        "if row.revoked_at is None and row.role in set(Role)",
        "if row.role in set(Role)",
        TOKENS,
    ),
    _mutant(
        "tuner_service/service/tokens.py",
        "agent_id=name if role is Role.AGENT else None",
        "agent_id=None",
        TOKENS,
    ),
    _mutant(
        "tuner_service/service/node_tokens.py",
        'agent_id if hmac.compare_digest(made, secret.encode("utf-8", "surrogateescape")) else None',
        "agent_id",
        "tests/unit/service/test_node_tokens.py",
    ),
    _mutant(
        "tuner_service/executors/ray/names.py",
        "if group.startswith(before) and",
        "if",
        "tests/unit/executors/ray/test_wanting.py",
    ),
    _mutant("tuner_service/dispatcher/asks.py", " and attempt.agent_id == EVALUATOR:", ":", ASKS),
    _mutant(
        "tuner_service/dispatcher/asks.py",
        "step.at - attempt.last_heard_at > lease_s",
        "step.at - attempt.created_at > lease_s",
        ASKS,
    ),
    _mutant(
        "tuner_service/dispatcher/dispatcher.py",
        "                if attempt.lineage != self.state.lineage:",
        "                if False:",
        ASKS,
    ),
    _mutant(
        "tuner_service/storage/postgresql/lease.py",
        "FROM tuner_lease WHERE epoch = %s FOR KEY SHARE OF tuner_lease",
        "FROM tuner_lease WHERE epoch >= %s FOR KEY SHARE OF tuner_lease",
        f"{LEASE}test_the_fence_refuses_who_was_followed_before_it_has_heard_of_it",
    ),
    _mutant(
        "tuner_service/storage/postgresql/claiming.py",
        "int(row[0]) + 1",
        "int(row[0])",
        f"{LEASE}test_an_owner_that_was_cut_off_too_long_finds_that_it_has_been_followed",
    ),
)
