"""Makes the table of plans again: ``python -m dpem.planner``, or only some models' with their names after it."""

import json
import sys

from dpem import registry
from dpem._files import write_text
from dpem.planner.grid import FILE, made, stored

if __name__ == "__main__":
    some = sys.argv[1:]
    grid = made(some or registry.general(), print)
    if some:
        kept = {name: own for name, own in stored()["models"].items() if name not in some}
        grid["models"] = dict(sorted({**kept, **grid["models"]}.items()))
    write_text(FILE, json.dumps(grid, separators=(",", ":")) + "\n")
    print(f"wrote {FILE.name}")
