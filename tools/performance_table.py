"""Convert the JSON of ``tools/measure_tile.py`` to the tables of the performance notebook."""

from __future__ import annotations

import json
import sys

COLUMNS = {
    "forward": "forward",
    "backward": "backward",
    "fp update": "Ideal update",
    "cs um": "ConstantStep managed",
    "cs fix": "ConstantStep fixed",
    "sb um": "SoftBounds managed",
    "sb fix": "SoftBounds fixed",
}


def main() -> int:
    with open(sys.argv[1]) as file:
        rows = json.load(file)
    print("| size | batch | " + " | ".join(COLUMNS.values()) + " |")
    print("|" + "---|" * (len(COLUMNS) + 2))
    for row in rows:
        cells = (f"{row[c][0]:.0f} ({row[c][0] / row[c][2]:.1f}x)" for c in COLUMNS)
        print(f"| {row['size']} | {row['batch']} | " + " | ".join(cells) + " |")
    hosts = ", ".join(f"{COLUMNS[c]} {min(r[c][1] for r in rows):.0f}" for c in COLUMNS)
    print(f"\nHost time of a call, us, least of the table: {hosts}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
