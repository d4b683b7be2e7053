"""What the commands of all packages share: bad input ends in one sentence and exit status 2, never in a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def run_app(app: Callable[[], Any]) -> NoReturn:
    """Run a Typer application and exit.

    Exit status: 0 when done, 1 when a command says so (a claim missed its tolerance), 2 for bad input (a ``ValueError``
    that reached the top, or Typer's own usage errors), 130 when interrupted. ``ANISOWM_TRACEBACK=1`` shows the
    traceback instead of the sentence.
    """
    try:
        app()
    except ValueError as error:
        if os.environ.get("ANISOWM_TRACEBACK") == "1":
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)
