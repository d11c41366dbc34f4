"""Files of the service, as an agent names them that shares no folder with it.

    tuner:///assets/files/AB/DIGEST            a file of the asset store, by its digest
    tuner:///staging/DIGEST                    where the service takes in what trials leave
    tuner:///checkpoints/EXPERIMENT/…          of the folder in which the service keeps checkpoints of its nodes
    tuner:///own/NAME                          a checkpoint in the service's own home, which agents only read
    tuner:///logs/EXPERIMENT/N/ATTEMPT/STREAM  what attempts wrote, and used, collected
    tuner:///secrets/NAME                      of the service's home

Each is ``/api/v1/agents/AGENT/files/AREA/PATH``: GET (with ranges; with the header LOOK, only SIZE or LISTING), and
PUT for some, piece by piece: a piece says where it begins (OFFSET), how long the whole is (SIZE) and its SHA-256
(DIGEST); GET with the latter two says where to go on.
"""

from __future__ import annotations

SCHEME = "tuner://"
OFFSET, SIZE, DIGEST = "Upload-Offset", "Upload-Size", "Upload-SHA256"  # headers
LOOK = "Only-Look"
LISTING = "Folder-Files"  # of a folder the names of its files, separated by "/"
ASSETS, STAGING, CHECKPOINTS, OWN, LOGS, SECRETS = "assets", "staging", "checkpoints", "own", "logs", "secrets"
PIECE_BYTES = 4 << 20  # of an upload, in one request


def remote(area: str, path: str = "") -> str:
    return f"{SCHEME}/{area}/{path}" if path else f"{SCHEME}/{area}"
