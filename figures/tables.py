"""Tables as Markdown and LaTeX, with the tidy CSV behind them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from figures import style

if TYPE_CHECKING:
    import pandas as pd

#: What a cell without a number holds.
BLANK = "–"
#: File types a table is written as.
SUFFIXES = (".md", ".tex", ".csv")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "κ": r"$\kappa$",
    "π": r"$\pi$",
    "Λ": r"$\Lambda$",
    "ρ": r"$\rho$",
    "−": r"$-$",
    "×": r"$\times$",
    "–": "--",
}


def save(printed: pd.DataFrame, frame: pd.DataFrame, name: str, caption: str, folder: Path) -> list[Path]:
    """Write NAME.md, NAME.tex and NAME.csv; equal input gives equal bytes.

    Parameters
    ----------
    printed
        The printed table: cells of text.
    frame
        The tidy table behind it, with ``origin`` where rows may be synthetic.
    name, caption, folder
        Stem of the files, what the table shows, where they go.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    if "origin" in frame and "synthetic" in set(frame["origin"]):
        caption = f"Synthetic rows made for tests. {caption}"
    contents = {
        f"{name}.md": f"{markdown(printed)}\n{caption}\n".encode(),
        f"{name}.tex": latex(printed, caption, name).encode(),
        f"{name}.csv": style.csv_bytes(frame),
    }
    return style.write(contents, folder)


def markdown(printed: pd.DataFrame) -> str:
    """A Markdown table; numbers to the right."""
    heads = [str(head).replace("|", r"\|") for head in printed.columns]
    rules = ["--:" if right else "---" for right in _to_the_right(printed)]
    lines = [heads, rules, *[[str(cell).replace("|", r"\|") for cell in row] for row in printed.to_numpy()]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def latex(printed: pd.DataFrame, caption: str, label: str) -> str:
    """A LaTeX table for the package booktabs."""
    columns = "".join("r" if right else "l" for right in _to_the_right(printed))
    lines = [" & ".join(map(escape, line)) + r" \\" for line in [list(printed.columns), *printed.to_numpy().tolist()]]
    body = [r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(caption)}}}",
            rf"\label{{tab:{label}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            *body,
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Text as LaTeX sets it literally."""
    return "".join(_LATEX.get(character, character) for character in str(text))


def number(value: float, form: str = ".1f") -> str:
    """A number, or a dash where there is none."""
    return BLANK if value != value else format(value, form).replace("-", "−")


def trim(value: float, digits: int = 1) -> str:
    """A number with at most ``digits`` decimals, none for a whole one; a dash where there is none."""
    return BLANK if value != value else f"{value:.{digits}f}".removesuffix("." + "0" * digits)


def _to_the_right(printed: pd.DataFrame) -> list[bool]:
    """Whether each column holds nothing but numbers, dashes and what goes with them."""
    plain = set("0123456789.+-−–% []()/,")
    return [all(set(str(cell)) <= plain for cell in printed[column]) for column in printed]
