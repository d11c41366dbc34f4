"""Lines that exactness stands on, each with what it would be if somebody broke it, and the tests that must see that.

A line that moves or changes is looked up again here: the run says which mutant does not apply any more.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant
from tests.mutants.on_the_disk import ON_THE_DISK

REPORTS = "tests/unit/dispatcher/test_reports.py"
SPOOL = "tests/unit/trials/test_agent_spool.py"
RECONCILE = "tests/unit/dispatcher/test_reconcile.py"
STORE = "tests/contract/test_store.py"
RUNNER = "tests/unit/service/test_runner.py::"
HELD_BACK = "tests/unit/trials/test_reports_held_back.py"
POOL = "tests/unit/workers/test_worker_pool.py::"
PARTS = "tests/unit/dispatcher/test_parts.py"
ASKS = "tests/unit/dispatcher/test_asks.py"
TOKENS = "tests/unit/service/test_tokens.py"
GENERATORS = "tests/unit/workers/test_shared_generators.py"
TRANSFERRED = "tests/unit/trials/test_transferred_bytes.py"
LEASE = "tests/integration/postgresql/test_one_active_service.py::"

NAMED: tuple[Mutant, ...] = (
    *ON_THE_DISK,
    # ── what counts once ────────────────────────────────────────────────────────────────────────
    mutant(
        "tuner_service/dispatcher/agents.py",
        "command.first_sequence > known + 1",
        "command.first_sequence > known + 2",
        REPORTS,
    ),
    mutant("tuner_service/dispatcher/agents.py", "or last <= known:", "or last < known:", REPORTS),
    mutant(
        "tuner_service/dispatcher/agents.py",
        "new = command.records[known + 1 - command.first_sequence :]",
        "new = command.records",
        REPORTS,
    ),
    mutant("tuner_service/dispatcher/agents.py", "if command.last_sequence > known:", "if False:", REPORTS),
    mutant(
        "tuner_service/dispatcher/agents.py",
        "if not ts.live.parts and ts.live.agent_id == agent_id != EVALUATOR:",
        "if not ts.live.parts:",
        REPORTS,
    ),
    mutant("tuner_service/dispatcher/reconcile.py", "or seen.lineage != lineage:", "or False:", RECONCILE),
    mutant(
        "tuner_service/dispatcher/reconcile.py",
        "AttemptStatus.STARTING and not attempt.acknowledged",
        "AttemptStatus.STARTING",
        RECONCILE,
    ),
    mutant("trials/agent/spool.py", "        if sequence < self.sequence:\n", "        if False:\n", SPOOL),
    mutant(
        "trials/agent/spool.py",
        "self._move(batch.first_sequence + count - 1, batch",
        "self._move(batch.first_sequence + count, batch",
        SPOOL,
    ),
    mutant("trials/agent/spool.py", "batch.ends[count - 1])", "batch.ends[-1])", SPOOL),
    mutant(
        "trials/agent/attempts.py",
        "type(found) is int and found != FILES_FORMAT",
        "False",
        "tests/unit/trials/test_agent_formats.py",
    ),
    mutant(
        "tuner_service/api/agents.py",
        "greeting.version != PROTOCOL_VERSION",
        "False",
        "tests/unit/api/test_agent_channel.py",
    ),
    mutant(
        "trials/wire/lines.py",
        " or (step is None) is not final",
        "",
        "tests/unit/service/test_report_lines.py",
    ),
    mutant(
        "tuner_service/service/runner.py",
        "                    accepted.append(future)",
        "                    future.set_result(None)",
        f"{RUNNER}test_whoever_is_answered_finds_the_commit_told",
    ),
    mutant(
        "tuner_service/service/runner.py",
        "            begun = self.clock.now()\n            sequence",
        "            begun = self.clock.now()\n            self._perform(effects)\n            sequence",
        f"{RUNNER}test_nothing_is_answered_or_performed_before_the_commit",
    ),
    mutant(
        "tuner_service/service/runner.py",
        "incarnation=f\"{self.incarnation}{self._dispatchers or ''}\",",
        "incarnation=self.incarnation,",
        f"{RUNNER}test_a_dispatcher_that_is_built_anew_gives_no_nonce_a_second_time",
    ),
    mutant(
        "tuner_service/storage/sql_store.py",
        "            if not saved:\n                self._writing.forget()\n",
        "            if not saved:\n",
        f"{STORE}::test_what_stood_in_a_refused_commit_is_written_when_it_comes_again[sqlite]",
    ),
    mutant(
        "trials/agent/conversation.py",
        " and not held.devices and held.spool.ends_with(batch)",
        " and not held.devices",
        HELD_BACK,
    ),
    mutant(
        "trials/agent/conversation.py",
        "held.spool.acknowledge(batch, answered.sequence)",
        "held.spool.acknowledge(batch, batch.last_sequence)",
        HELD_BACK,
    ),
    mutant(
        "trials/agent/conversation.py",
        "            if not await held.spool.move_to(sequence) and held.is_supervised():\n                raise",
        "            if not await held.spool.move_to(sequence) and False:\n                raise",
        HELD_BACK,
    ),
    mutant(
        "trials/agent/spool.py",
        "        if self._before and found != self._before:\n            raise",
        "        if False:\n            raise",
        SPOOL,
    ),
    # ── what the algorithms know ────────────────────────────────────────────────────────────────
    mutant(
        "tuner_service/dispatcher/algorithms.py",
        "        _move_cursor(step, xs, event.queue, answer.line)\n",
        "",
        "tests/unit/dispatcher/test_algorithm_worker.py",
    ),
    mutant(
        "tuner_service/dispatcher/algorithms.py",
        "event.line <= _cursor(xs, event.queue)",
        "True",
        "tests/unit/dispatcher/test_algorithm_worker.py",
        "tests/unit/dispatcher/test_recovery.py",
    ),
    mutant(
        "tuner_service/dispatcher/endings.py",
        "return trial.reports_line <= cursor",
        "return True",
        "tests/unit/dispatcher/test_multi_phase.py",
    ),
    mutant(
        "tuner_service/storage/changed_rows.py",
        "        _put(connection, tables.queue_cursors, [row for e in experiments for row in mapping.cursors_in(e)])\n",
        "",
        STORE,
    ),
    mutant(
        "tuner_service/storage/reading.py",
        "            m.c.first,\n            m.c.step.is_not(None),\n            m.c.objective",
        "            m.c.step.is_not(None),\n            m.c.objective",
        "tests/contract/test_store_unread_reports.py::test_a_step_that_a_later_attempt_has_reported_again_is_not_among_them[sqlite]",
    ),
    mutant(
        "tuner_service/workers/pool.py",
        "is not None and found[0] <= cursor:",
        "is not None:",
        f"{POOL}test_a_snapshot_of_more_than_was_answered_is_left_out",
    ),
    mutant(
        "tuner_service/workers/worker.py",
        "self._lines_since_snapshot >= self._next_snapshot and not self._taken:",
        "self._lines_since_snapshot >= self._next_snapshot:",
        "tests/unit/workers/test_refused_snapshots.py",
    ),
    mutant(
        "trials/learner/coordination/coordinator.py",
        "            if info.number > self._heard[name]:",
        "            if True:",
        "tests/unit/trials/test_learner_journal.py",
    ),
    # ── what is believed ────────────────────────────────────────────────────────────────────────
    mutant(
        "trials/checkpoints/verified_files.py",
        "return None if digest_of(path) == digest else path.name",
        "return None",
        "tests/unit/trials/test_checkpoints.py",
    ),
    mutant(
        "trials/data/loader_state.py",
        'if state.get("dataset") != dataset:',
        "if False:",
        "tests/unit/trials/test_data_loader_state.py",
    ),
    mutant(
        "trials/data/loader_state.py",
        'if state.get("order") != order:',
        "if False:",
        "tests/unit/trials/test_data_loader_state.py",
    ),
    mutant(
        "trials/data/loader.py",
        "        self._delivered = loaded.end\n",
        "        self._delivered = loaded.end - 1\n",
        "tests/integration/trials/test_data_solo_equality.py",
    ),
    mutant(
        "trials/data/core/in_order_pipeline.py",
        "        self._next_delivery += 1\n        if batch.death",
        "        self._next_delivery += 2\n        if batch.death",
        "tests/unit/trials/test_data_in_order_pipeline.py",
    ),
    mutant(
        "trials/data/core/in_order_pipeline.py",
        "                entry.abandoned = True\n                    for part",
        "                entry.abandoned = False\n                    for part",
        "tests/unit/trials/test_data_in_order_pipeline.py",
    ),
    mutant(
        "trials/data/sharing/shared_batches.py",
        "seed=position.seed)\n            self._end_alone()",
        "seed=position.seed)",
        "tests/unit/trials/test_shared_data_alone.py",
    ),
    mutant(
        "trials/learner/learner.py",
        '                    self._dues[hook.name].best = saved["best"]',
        "                    pass",
        "tests/unit/trials/test_learner_loop.py",
    ),
    # ── bytes that came from elsewhere ──────────────────────────────────────────────────────────
    mutant("trials/agent/moving/blobs.py", " or self._hash.hexdigest() != sent.digest:", ":", TRANSFERRED),
    mutant(
        "trials/agent/moving/restoring.py",
        "        return digest_of(path) == digest\n",
        "        return True\n",
        TRANSFERRED,
    ),
    mutant(
        "trials/agent/moving/offers.py",
        " and hashlib.sha256(data).hexdigest() == record.digest",
        "",
        TRANSFERRED,
    ),
    mutant(
        "trials/agent/moving/node_cache.py",
        "if found == file.digest:",
        "if found:",
        "tests/unit/trials/test_node_cache.py",
    ),
    mutant(
        "tuner_service/exports/archive.py",
        '(found.rows, found.digest) != (order["rows"], order["digest"]):',
        'found.rows != order["rows"]:',
        "tests/unit/exports/test_damaged_archives.py",
    ),
    mutant(
        "tuner_service/dispatcher/archiving.py",
        "    _require_ended(xs, command.phase)\n",
        "",
        "tests/unit/dispatcher/test_archiving.py",
    ),
    mutant(
        "tuner_service/dispatcher/archiving.py",
        "if isinstance(item, MetricsReported)",
        "if False",
        "tests/unit/dispatcher/test_archiving.py",
    ),
    mutant(
        "tuner_service/dispatcher/retention.py",
        "[c for c in kept if c.digest == record.digest]",
        "list(kept)",
        "tests/unit/dispatcher/test_retention.py",
    ),
    # ── trials of several nodes ─────────────────────────────────────────────────────────────────
    mutant(
        "tuner_service/dispatcher/orders.py",
        "    if attempt.is_preparing:\n",
        "    if part.state is PartState.PREPARING:\n",
        PARTS,
    ),
    mutant("tuner_service/dispatcher/orders.py", " or attempt.has_failed_part:", ":", PARTS),
    mutant(
        "tuner_service/dispatcher/parts.py",
        "elif all(one.state is PartState.ENDED for one in ts.live.parts):",
        "elif any(one.state is PartState.ENDED for one in ts.live.parts):",
        PARTS,
    ),
    mutant(
        "tuner_service/dispatcher/parts.py",
        "    if ts.live.is_preparing:\n        _give_back(ts, f",
        "    if False:\n        _give_back(ts, f",
        PARTS,
    ),
    mutant("tuner_service/dispatcher/parts.py", "[*outside, *unasked, *asked]", "[*unasked, *asked]", PARTS),
    mutant(
        "tuner_service/dispatcher/parts.py",
        "return attempt.parts[node].acknowledged if node else attempt.acknowledged",
        "return attempt.acknowledged",
        PARTS,
    ),
    # ── who may ─────────────────────────────────────────────────────────────────────────────────
    mutant(
        "tuner_service/service/tokens.py",
        "if token is None or (token.expires_at is not None and self.clock.now() >= token.expires_at):",
        "if token is None:",
        TOKENS,
    ),
    mutant(
        "tuner_service/service/tokens.py",
        "if row.revoked_at is None and row.role in set(Role)",
        "if row.role in set(Role)",
        TOKENS,
    ),
    mutant(
        "tuner_service/service/tokens.py",
        "agent_id=name if role is Role.AGENT else None",
        "agent_id=None",
        TOKENS,
    ),
    mutant(
        "tuner_service/service/node_tokens.py",
        'agent_id if hmac.compare_digest(made, secret.encode("utf-8", "surrogateescape")) else None',
        "agent_id",
        "tests/unit/service/test_node_tokens.py",
    ),
    mutant(
        "tuner_service/executors/ray/names.py",
        "if group.startswith(before) and",
        "if",
        "tests/unit/executors/ray/test_wanting.py",
    ),
    mutant("tuner_service/dispatcher/asks.py", " and attempt.agent_id == EVALUATOR:", ":", ASKS),
    mutant(
        "tuner_service/dispatcher/asks.py",
        "step.at - attempt.last_heard_at > lease_s",
        "step.at - attempt.created_at > lease_s",
        ASKS,
    ),
    mutant(
        "tuner_service/dispatcher/dispatcher.py",
        "                if attempt.lineage != self.state.lineage:",
        "                if False:",
        ASKS,
    ),
    mutant(
        "tuner_service/storage/postgresql/lease.py",
        "FROM tuner_lease WHERE epoch = %s FOR KEY SHARE OF tuner_lease",
        "FROM tuner_lease WHERE epoch >= %s FOR KEY SHARE OF tuner_lease",
        f"{LEASE}test_the_fence_refuses_who_was_followed_before_it_has_heard_of_it",
    ),
    mutant(
        "tuner_service/storage/postgresql/lease.py",
        "FROM tuner_lease WHERE ctid = %s::tid AND epoch = %s FOR KEY SHARE OF tuner_lease",
        "FROM tuner_lease WHERE ctid = %s::tid AND epoch >= %s FOR KEY SHARE OF tuner_lease",
        f"{LEASE}test_the_fence_refuses_who_was_followed_before_it_has_heard_of_it",
    ),
    mutant(
        "tuner_service/storage/postgresql/store.py",
        'connection.exec_driver_sql("SELECT epoch FROM tuner_lease FOR UPDATE")',
        "pass",
        "tests/integration/postgresql/test_lost_connections.py::"
        "test_whether_a_commit_was_taken_is_known_once_the_server_has_done_with_it",
    ),
    mutant(
        "tuner_service/storage/postgresql/claiming.py",
        "int(row[0]) + 1",
        "int(row[0])",
        f"{LEASE}test_an_owner_that_was_cut_off_too_long_finds_that_it_has_been_followed",
    ),
    mutant(
        "tuner_service/storage/postgresql/owner.py",
        "        return same_place and process_mark",
        "        return process_mark",
        "tests/unit/storage/test_owner_of_a_lease.py",
    ),
    mutant(
        "trials/processes/identity.py",
        "stat is None or stat.start_time != process.start_time:\n            return False\n        signal.",
        "stat is None:\n            return False\n        signal.",
        "tests/unit/trials/test_ending_processes.py",
    ),
    # ── what algorithms go on from ──────────────────────────────────────────────────────────────
    mutant(
        "tuner_service/tuners/cma_state.py",
        "np.dot(np.dot(kept[AXES], np.diag(kept[LENGTHS] ** 2)), kept[AXES].T)",
        "np.dot(kept[AXES], np.dot(np.diag(kept[LENGTHS] ** 2), kept[AXES].T))",
        "tests/unit/tuners/test_cma_es.py",
    ),
    mutant("tuner_service/tuners/botorch_model.py", "    with alone:\n", "    if True:\n", GENERATORS),
    mutant("tuner_service/workers/worker.py", "alone if self._of_user and name", "alone if False and name", GENERATORS),
    mutant(
        "tuner_service/tuners/grid.py",
        '        self._next = state["next"]\n',
        "        self._start()\n",
        "tests/unit/tuners/test_stock_tuners.py",
    ),
)
