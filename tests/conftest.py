"""Settings every test shares: one numerical thread, derandomised property tests, and a count of their examples."""

from __future__ import annotations

import os

# Before NumPy or PyTorch load: parallel test processes must not fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import re
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile(
    "explore",
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_EXAMPLES = "hypothesis_examples"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the number of passing hypothesis examples to a test's report, which also travels between processes."""
    report = yield
    if call.when == "call":
        statistics = getattr(item, "hypothesis_statistics", None)
        if statistics:
            passing = sum(int(number) for number in re.findall(r"(\d+) passing", str(statistics)))
            report.user_properties.append((_EXAMPLES, passing))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many properties ran and on how many examples."""
    counts = [
        int(str(value))
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == _EXAMPLES
    ]
    if counts:
        terminalreporter.write_line(f"hypothesis: {len(counts)} properties, {sum(counts)} passing examples")
