"""One record per implementation and work, as JSON lines or as a table."""

import json
import sys
from collections.abc import Iterable
from typing import Any

Record = dict[str, Any]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def print_json(records: Iterable[Record]) -> list[Record]:
    """Each as soon as it is there."""
    done = []
    for record in records:
        print(json.dumps(record), flush=True)
        done.append(record)
    return done


def print_table(records: Iterable[Record]) -> list[Record]:
    """By rich where it is installed, in plain columns where it isn't; floats to three digits."""
    done = list(records)
    columns = list(dict.fromkeys(key for record in done for key in record))
    table = [[_cell(record.get(column, "")) for column in columns] for record in done]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, cells)) for cells in zip(columns, *table, strict=True)]
        for row in (columns, *table):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    else:
        # Figures are to be read, also where the output goes to a file and rich assumes 80 columns: no word is cut.
        words = [[len(word) for cell in cells for word in cell.split()] for cells in zip(columns, *table, strict=True)]
        rich_table = Table()
        for column, lengths in zip(columns, words, strict=True):
            rich_table.add_column(column, min_width=max(lengths))
        for row in table:
            rich_table.add_row(*row)
        console = Console()
        console.width = max(console.width, 120, sum(max(lengths) + 3 for lengths in words) + 1)
        console.print(rich_table)
    return done


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={number}" for name, number in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
