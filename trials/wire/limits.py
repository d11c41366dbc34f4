"""The limits that both sides keep to. Each names what happens at it."""

from __future__ import annotations

REPORT_BATCH_LINES = 2_000  # a longer spool is sent in several messages
REPORT_BATCH_BYTES = 1 << 20  # more bytes of lines are sent in several messages
REPORT_LINE_BYTES = 64 << 10  # report() raises ReportTooLargeError beyond
METRICS_LIMIT = 1_000  # of one report; report() raises ReportTooLargeError beyond
METRIC_NAME_LIMIT = 200  # characters; report() raises ValueError beyond
STEP_MAX = 2**53  # of steps, counts and whole metrics: readers of JSON disagree about larger whole numbers
SPOOL_LIMIT_BYTES = 256 << 20  # report() blocks until the service has acknowledged some of it
NOT_KEPT = "it is not kept"  # ends the answer to an offered checkpoint that no repetition would have kept
CHECKPOINT_INLINE_BYTES = 16 << 20  # larger checkpoints stay in the checkpoint folder; the row holds the path
BLOB_CHUNK_BYTES = 1 << 20
LOG_LIMIT_BYTES = 16 << 20  # per stream and file; one older file is kept beside it
RESOURCE_SAMPLES = 240  # of an attempt; when there are as many, each two become one
RESOURCES_BYTES = 32 << 10  # of the file that holds them; what is beyond is not read
OUTPUT_TAIL_BYTES = 4 << 10  # kept in the exit record
LOG_CHUNK_BYTES = 256 << 10  # most bytes in one LogChunk
LOG_INLINE_BYTES = 64 << 10  # of a stream, in Exited; what is longer goes over HTTP before it
MESSAGE_LIMIT_BYTES = 64 << 20  # a longer message from the service closes the channel
DEVICES_LIMIT = 1_024  # of a node, MIG instances included; what there is beyond is not looked at
FRAME_VALUES_LIMIT = 100_000  # texts, numbers, lists and objects in a frame for the service; one of more is not read
FRAME_JOINED_BYTES = 4 * 2**20  # of messages in one frame; only one that is longer by itself makes a longer frame
FRAME_MESSAGES_LIMIT = 64  # in one frame at most; more go into further frames
NOT_UNDERSTOOD_LIMIT = 100  # answers of that kind on one connection; what comes beyond is only logged
OUTPUT_FILES_LIMIT = 100_000  # of what a trial leaves; what is beyond is left out, and the output incomplete
OUTPUT_BYTES_LIMIT = 64 << 30  # likewise
