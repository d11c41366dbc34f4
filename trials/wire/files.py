"""The names of what lies in the folder of an attempt, and of the variables that its script gets.

Imports nothing, because the parent of every trial imports it.
"""

# ── environment of a trial ──────────────────────────────────────────────────────────────────────
ENV_ATTEMPT_DIR = "TUNER_ATTEMPT_DIR"
ENV_NONCE = "TUNER_NONCE"
ENV_EXPERIMENT_ID = "TUNER_EXPERIMENT_ID"
ENV_TRIAL_NUMBER = "TUNER_TRIAL_NUMBER"
ENV_ATTEMPT = "TUNER_ATTEMPT"
ENV_OBJECTIVE = "TUNER_OBJECTIVE"
ENV_SEED = "TUNER_SEED"
ENV_WAKE_SOCKET = "TUNER_WAKE_SOCKET"
ENV_PARAMETER_PREFIX = "TRIAL_PARAM_"

# ── files of an attempt: HOME/attempts/<experiment>/<number>/<attempt>-<nonce>/ ─────────────────
# Trials outlive the version that started them, and every version finds them by these files. So what another version has
# to know of a folder before it reads on never changes: where the folder lies, its index entry below HOME/agent/live,
# and the field FORMAT of its attempt, claim and exit. That of the attempt stands for the folder as a whole, and so for
# its spool; claim and exit have their own, because processes of another version may write them. Without it: format 1.
FORMAT = "format"
FILES_FORMAT = 1
FILE_ATTEMPT = "attempt.json"  # the Launch message, written by the agent before anything starts
FILE_CLAIM = "claim.json"  # ProcessRecord of the supervisor, created exclusively: the nonce is spent
FILE_PROCESS = "process.json"  # ProcessRecord of the trial, once it runs
FILE_PARAMETERS = "parameters.json"
FILE_FURTHER_PARAMETERS = "parameters-{index}.json"  # {"parameters": …}, null when there are none; from index 1
FILE_INPUTS = "inputs.json"  # parameter: path, or list of paths; where the trial is given any
FILE_OUTPUT = "output.json"  # {"final": true} once what it left at its end is an asset
FILE_SPOOL = "reports.jsonl"
FILE_ACKNOWLEDGED = "acknowledged.json"  # {"sequence": n, "offset": bytes}
FILE_WANTED = "wanted.json"  # {"id", "number", "step"}: as CheckpointsWanted, from the script
BEST_TRIAL = 0  # there, in place of a number: trials are counted from 1
FOLDER_WANTED = "wanted-{id}"  # the answer: a FILE_RESTORE in it, with "error" where there is none
FILE_STOP = "stop.json"  # exists once the trial is asked to stop
FILE_COOPERATES = "cooperates"  # exists once the script has called should_stop
FILE_EXIT = "exit.json"  # ExitRecord, durable before the trial is reaped
FILE_STDOUT = "stdout.log"
FILE_STDERR = "stderr.log"
FILE_RESOURCES = "resources.jsonl"  # what it used over time, as trials/wire/resources.py reads it
FOLDER_CHECKPOINTS = "checkpoints"  # written by the SDK
FOLDER_RESTORE = "restore"  # written by the agent before the start: what restore() may load
FOLDER_WORK = "work"  # the working directory: a copy of the experiment's code
FILE_RESTORE = "restore.json"  # in there: {"checkpoints": [{"file", "digest", "step"}]}, newest first; or "problem"
