"""Which processes belong to a home folder, and what each of them is."""

from __future__ import annotations

from pathlib import Path

from tests.process_table import parent, processes

TARGETS = (
    "service",
    "worker",
    "worker server",
    "agent",
    "supervisor",
    "trial",
)  # supervisor: whatever is the parent of trials
# Parents of trials by their programs, wherever in the package a version has them.
PARENTS = ("/supervisor.py", "/fork_server.py", "/forkserver.py")
SUPERVISOR_SERVER = "/supervisor_server.py"  # it forks supervisors, and is the parent of no trial


class Table:
    """What runs at one moment, and what of it belongs to a home: looked at once, since each look reads all of /proc."""

    def __init__(self, home: Path) -> None:
        self._home, self._words = str(home), dict(processes())

    def pids(self, target: str) -> list[int]:
        match target:
            case "service":
                named = [pid for pid, words in self._words.items() if "serve" in words and self._home in words]
                return [pid for pid in named if parent(pid) not in named]  # a child has its words until it has its own
            case "worker":
                starters = {*self.pids("service"), *self.pids("worker server")}
                named = [pid for pid, words in self._words.items() if "tuner_service.workers.worker" in words]
                above = {pid: parent(pid) for pid in named}
                keepers = {pid for pid in named if above[pid] in starters}
                return [pid for pid in named if pid in keepers or above[pid] in keepers]
            case "worker server":
                services = set(self.pids("service"))
                named = [pid for pid, words in self._words.items() if "tuner_service.workers.fork_server" in words]
                return [pid for pid in named if parent(pid) in services]
            case "agent":
                return [pid for pid, words in self._words.items() if "trials.agent" in words and self._home in words]
            case "supervisor":
                parents = set(self.parents())
                followed = {above for above in self._parents_of_all() if above in parents}
                return sorted(followed | set(self.supervisor_servers()))
            case _:
                parents = set(self.parents())
                return [pid for pid, above in zip(self._words, self._parents_of_all(), strict=True) if above in parents]

    def parents(self) -> list[int]:
        return [pid for pid, words in self._words.items() if self._runs(words, PARENTS)]

    def supervisor_servers(self) -> list[int]:
        return [pid for pid, words in self._words.items() if self._runs(words, SUPERVISOR_SERVER)]

    def _parents_of_all(self) -> list[int]:
        """In the order of the table; nothing where nobody can be one."""
        return [parent(pid) for pid in self._words] if self.parents() else [0] * len(self._words)

    def _runs(self, words: list[str], scripts: str | tuple[str, ...]) -> bool:
        script = any(word.endswith(scripts) for word in words)
        return script and any(word.startswith(self._home) for word in words)
