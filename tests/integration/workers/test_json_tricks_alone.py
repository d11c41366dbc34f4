"""json-tricks is imported without pandas, and a user's class may still encode its tables with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pandas")


def test_pandas_is_imported_when_a_table_comes_and_not_before() -> None:
    program = (
        "import sys\n"
        "from tuner_service.workers import protocol\n"
        "assert 'pandas' not in sys.modules\n"
        "import json_tricks, pandas\n"
        "text = json_tricks.dumps(pandas.DataFrame({'a': [1, 2]}))\n"
        "assert json_tricks.loads(text)['a'].tolist() == [1, 2]\n"
        "print('encoded')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "encoded\n", done.stderr
