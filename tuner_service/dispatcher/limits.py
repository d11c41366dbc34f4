"""The dispatcher's bounds, and what happens at each."""

SUGGESTED_AHEAD_MAX = 4  # trials suggested before there is room for them; as many as run at a time if these are fewer
QUEUE_WARNING_LENGTH = 20  # a longer queue is reported with its depth, once until it is below half of this
TUNER_QUEUE_LIMIT = 1_000  # lines; beyond it people's trials, results and spaces are refused
ADDED_TRIALS_LIMIT = 1_000  # waiting trials of an experiment; beyond it no more are added
IMPORTED_OUTCOMES_LIMIT = 10_000  # in one request; more are refused
IMPORTED_LINE_BYTES = 2**20  # on one line of the journal; then another one begins. Nobody else runs while it is encoded
FURTHER_PARAMETERS_LIMIT = 1_000  # of one trial; then its script is told that there are no more
ASSESSOR_QUEUE_LIMIT = 1_000  # lines with reports, and others beside them; beyond it reports wait in their spools
# Reports in those lines, which hold up to some thousands each; likewise. Those that are taken all the same, because
# their trial has ended and nobody judges, stay in their rows until they are delivered.
ASSESSOR_REPORTS_LIMIT = 100_000
METRICS_A_REPORT = 10  # that a waiting line holds whole, as those of a deterministic experiment do, count as a report
REFUSED_REPORTS_RETRY_S = 0.2
UNJUDGED_REPORTS_RETRY_S = 2.0  # likewise, while nobody judges until a person has looked
SET_ASIDE_RETRY_S = 60.0  # after which reports of an experiment whose rows are damaged are sent again
DEATHS_WITHOUT_PROGRESS_LIMIT = 10  # a trial that dies this often between two new reports has failed
RETRY_PAUSE_S = (
    1.0  # before the second new attempt of a trial; the first begins at once, each later one waits twice as long
)
PREPARE_LIMIT_S = 60.0  # for all nodes of a trial to be ready; then they are given back, and it is tried again
NOT_READY_LIMIT = 10  # a trial whose nodes were not ready this often in a row pauses its experiment
RETRY_PAUSE_LIMIT_S = 60.0  # the longest such pause
WORKER_DEATHS_LIMIT = 8  # in a row, before it was ready or with the same line to answer: the experiment is paused
WORKER_IDLE_DEATHS_LIMIT = 16  # likewise with nothing to answer, none of them after a steady life
PAUSED_WORKER_S = 10.0  # a paused experiment's worker that has nothing to do lives on for so long
WORKER_STEADY_S = 5.0  # a worker that lived this long starts its count of deaths anew
WORKER_BACKOFF_S = 0.05  # doubled by every death in a row
WORKER_BACKOFF_LIMIT_S = 5.0
WORKER_DOUBLINGS_LIMIT = 10  # beyond, every pause is the longest one
ALGORITHM_RETRIES = 3  # of one line that hangs or is temporarily unable: then the experiment is paused
PING_EVERY_S = 5.0  # of silence
PING_TIMEOUT_S = 10.0  # without an answer the worker is replaced
LAUNCH_REPEAT_S = 10.0  # a launch that was not confirmed is ordered again; a stop, so long after its grace
RUNNING_TIME_SAVED_S = 10.0  # of an experiment with a duration; at most this much is lost with the service
IDENTICAL_FAILURES_LEAST = 2  # the first max(parallel, this) trials failing alike pause the experiment
MESSAGE_LIMIT = 1_000  # characters of a sentence beside a status
DETAIL_LIMIT = 16_000  # characters of a traceback
NOTICES_LIMIT = 5  # kept of one attempt; its later ones are dropped
REJECTED_RECORDS_LIMIT = 20  # journal lines about unreadable records, of one attempt
SPACE_FOR_METRIC_NAMES = 50  # names of metrics remembered per trial, for messages
QUOTA_GROUPS_LIMIT = 1_000  # beyond it no more are made
CLAIMS_AT_ONCE = 16  # waiting trials of one experiment that are looked at in one placement; then the next ones
CLAIMS_FOR_NODES = 256  # of one experiment that are looked at to say how many further nodes would be of use
PREEMPTED_AFTER_S = 60.0  # an attempt that has run for so long, and has saved, may have to leave for a higher priority
PREEMPTION_LOOK_S = 5.0  # while something waits for that: so often it is looked whether any may leave by now
RETIRED_LIMIT = 1_000  # agents remembered whose nodes are given back; then the oldest go
FRESH_BLOBS_LIMIT = 10_000  # digests remembered between a blob and the report that names it; then the oldest go
WORKER_START_LIMIT_S = 600.0  # to build the algorithms, or to fold one line; then the worker is replaced
