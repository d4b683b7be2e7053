"""Published numbers: small CSV files, each row with its source, so that no script holds a number of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).with_name("published")
#: How a source says that the number was not read in the publication itself.
SECOND_HAND = "quoted second-hand"


def names() -> list[str]:
    """Names of the published tables, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def read(name: str) -> pd.DataFrame:
    """One published table.

    Parameters
    ----------
    name
        Its stem, such as ``"table4_seeds"``.

    Returns
    -------
    pandas.DataFrame
        The file's columns, ``source`` among them.

    Raises
    ------
    ValueError
        If there is no such table, it cannot be read, or a row names no source.
    """
    import pandas as pd

    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise ValueError(f"There is no published table {name!r}; the tables are {', '.join(names())}.")
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a CSV file ({type(error).__name__}).") from None
    if "source" not in table or table.empty or table["source"].isna().any():
        raise ValueError(f"{path} must name a source in every row.")
    return table


def second_hand(table: pd.DataFrame) -> pd.Series:
    """Whether each row is quoted second-hand, (rows,)."""
    return table["source"].str.contains(SECOND_HAND, regex=False)
