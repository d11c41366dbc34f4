"""Which variables a trial gets of whoever started the service, without being asked for: what programs run with.

Everything else (keys of clouds, passwords, a service's own settings) an experiment names in ``pass_environment``.
Pure. Imported by the supervisor, so it stays as small as its start is quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache

NAMES_REMEMBERED = 4_096
# Names the folder that the service put on PYTHONPATH for itself and its agent: where its packages are. A trial
# with an interpreter of its own would import the service's torch from there, so none gets it.
ADDED_PATH = "TUNER_ADDED_PATH"
NAME_OF_SECRET = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"  # noqa: S105  the form of its name, and so of its file's
_NAMES = frozenset(
    {
        # the person, the place and the language
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"),
        # compilers, for extensions that are built when they are imported
        *(
            "CC",
            "CXX",
            "CFLAGS",
            "CXXFLAGS",
            "LDFLAGS",
            "CPATH",
            "C_INCLUDE_PATH",
            "CPLUS_INCLUDE_PATH",
            "LIBRARY_PATH",
        ),
        *("CUDACXX", "MAX_JOBS", "PKG_CONFIG_PATH"),
        # the network
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"),
        # libraries
        *("TOKENIZERS_PARALLELISM", "PYTORCH_ENABLE_MPS_FALLBACK", "MPLBACKEND", "MPLCONFIGDIR", "NO_COLOR"),
    }
)
_PREFIXES = (
    *("LC_", "XDG_", "PYTHON", "CONDA_", "MAMBA_", "PYENV_"),
    *("CUDA", "CUDNN_", "CUBLAS_", "CUFFT_", "NVIDIA_", "NVCC_", "NCCL_", "NVTE_"),
    *("HIP_", "ROCR_", "ROCM_", "HSA_", "MIOPEN_", "RCCL_"),
    *("OMP_", "MKL_", "OPENBLAS_", "BLIS_", "GOTO_", "KMP_", "GOMP_", "NUMEXPR_", "NUMBA_", "VECLIB_", "MALLOC_"),
    *("GLOO_", "UCX_", "OMPI_", "FI_"),
    *("TORCH", "PYTORCH_", "TRITON_", "INDUCTOR_", "XLA_", "JAX_", "TF_", "TFDS_", "KERAS_"),
    *("HF_", "TRANSFORMERS_", "DIFFUSERS_", "DATASETS_", "ACCELERATE_", "DEEPSPEED_", "SCIKIT_LEARN_"),
)
# A name like these is no part of what programs run with, whatever it begins with: HF_TOKEN, HF_HUB_API_KEY.
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "API_KEY", "APIKEY")
_SECRET_ENDINGS = ("_KEY", "_AUTH", "_PAT", "_DSN")
# Of the terminal, the desktop and the system's own manager: nobody misses them in a trial.
_OF_THE_SESSION = frozenset(
    {
        *("_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "MAIL", "EDITOR", "VISUAL", "PAGER", "LESS", "LS_COLORS"),
        *(
            "LESSOPEN",
            "LESSCLOSE",
            "PS1",
            "PS2",
            "PROMPT_COMMAND",
            "COLORTERM",
            "WINDOWID",
            "DISPLAY",
            "WAYLAND_DISPLAY",
        ),
        *("DBUS_SESSION_BUS_ADDRESS", "DESKTOP_SESSION", "SESSION_MANAGER", "INVOCATION_ID", "JOURNAL_STREAM"),
        *("SYSTEMD_EXEC_PID", "DEBIAN_FRONTEND", "TMUX", "TMUX_PANE", "STY"),
    }
)
_OF_THE_SESSION_PREFIXES = (
    "TUNER_",
    "TRIAL_PARAM_",
    "SSH_",
    "GPG_",
    "TERM_",
    "VSCODE_",
    "GNOME_",
    "KDE_",
    "HIST",
    "LESS_",
)


def with_path(environment: Mapping[str, str], root: str) -> dict[str, str]:
    """``environment`` in which Python finds what is installed in ``root``, and trials are not given that folder."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root in paths:  # somebody's own, or added before
        return dict(environment)
    return {**environment, "PYTHONPATH": os.pathsep.join([root, *paths]), ADDED_PATH: root}


@lru_cache(maxsize=NAMES_REMEMBERED)
def is_inherited(name: str) -> bool:
    """Whether every trial gets it."""
    return name in _NAMES or (name.startswith(_PREFIXES) and not looks_secret(name))


def looks_secret(name: str) -> bool:
    upper = name.upper()
    return upper.endswith(_SECRET_ENDINGS) or any(part in upper for part in _SECRET_PARTS)


def left_out(names: list[str], given: list[str]) -> list[str]:
    """Of ``names`` those that no trial gets and somebody may miss, in order; ``given`` are asked for."""
    kept = {*given, *_OF_THE_SESSION}
    return sorted(
        name
        for name in names
        if name not in kept and not is_inherited(name) and not name.startswith(_OF_THE_SESSION_PREFIXES)
    )
