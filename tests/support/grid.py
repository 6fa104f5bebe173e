"""Whether the long form of tests is run: every kind with every provider, and every kill.

`HOLDFAST_GRID=all` runs it, which takes hours. Otherwise each of these tests runs in a short form.
"""

from __future__ import annotations

import os
from typing import Final

WHOLE: Final = os.environ.get("HOLDFAST_GRID") == "all"
